"""What a stream of server-sent events says: tokens with their instants, read from the log and nowhere else.

Output is whatever the model writes: an answer's text, what it thinks before it, calls of tools. What servers do beside
the interface, and lets all tokens come all the same, is read and named (``WARNINGS``).
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from paceline.families.serving.core.load.log.deltas import ANSWER, Kind, Output, output_of
from paceline.families.serving.core.load.log.framing import Chunks, EventReader, ServerEvent, unpacked
from paceline.families.serving.core.load.log.reasons import error_of, reason_of, shortened

DONE = b"[DONE]"
ERROR = "error"
"""Name of an event that tells of an error, whatever its data are."""
KEEP_ALIVE = "ping"
"""Type of a JSON event that keeps the connection alive."""

BROKEN_ERROR = re.compile(r'\s*\{\s*"error"\s*:\s*(.*)', re.DOTALL)
"""An error whose own words make its JSON none: servers write quotation marks and ends of lines as they are."""

CountedBy = Literal["token_ids", "running_usage", "usage", "limit", "chunks"]

WARNINGS = {
    "after_done": "output came behind [DONE], and was counted",
    "bad_utf8": "bytes that are not UTF-8 were replaced",
    "bare_json": "events stood on lines without 'data:'",
    "compressed": "the answer was compressed, which nobody asked for; instants are those at which it could be unpacked",
    "content_type": "a stream of events came under another content type",
    "end_token": "the server counts the end token, which is no token of output",
    "informational": "informational responses came before the answer",
    "no_done": "a finish reason or the usage told the end, and no [DONE] did",
    "no_empty_line": "no empty line ended the last event",
    "one_event": "several tokens came as one event: their pace cannot be seen, nor when the first was there",
    "one_newline": "one newline ended events, where the standard wants an empty line",
    "odd_usage": "counts of the usage that are no whole numbers from 0 on were left out",
    "other_choices": "events of other choices were left out, and so was the usage, which counts them",
    "redirected": "the server sent the call on to another address once; the way round is in its time",
    "resent": "the server had closed an idle connection, and the call was sent again on a new one",
    "some_ids": "some events tell ids and others do not; ids were not used",
    "status": "the status is another 2xx than 200",
    "unknown_part": "content of a kind that is not known was left out",
    "usage_jumps": "counts of single events fall, or do not end at the last one, and were not used",
}
"""What may be unusual about a whole answer, and what was made of it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One event that holds output."""

    at_ns: int
    """Instant of the bytes that completed it."""
    tokens: float
    """How many tokens it holds; a share of the usage's number where events do not tell."""
    kind: Kind = ANSWER
    """What it holds; ``answer`` where it holds some of the answer and thinking too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A whole answer."""

    pieces: tuple[Piece, ...]
    text: str
    """Of the answer, without what was thought and calls of tools."""
    thinking: str
    token_ids: tuple[int, ...] | None
    """None where the server does not tell them."""
    tokens: int
    """How many there are, of all kinds."""
    counted_by: CountedBy
    """From ids; from the server's count in every event; from its count of all; by the limit at which it ended, where
    the server was seen to write as many (``log.outcomes``); else one for each event."""
    usage_tokens: int | None
    """What the server says that it wrote."""
    prompt_tokens: int | None
    cached_tokens: int | None
    finish: str | None
    done: bool
    """Whether [DONE] came."""
    summed: bool
    """Whether a usage came in an event without output, as servers tell it at the end."""
    problem: str | None
    """What is not as the interface says, or None."""
    failure: str | None
    """An error that the server told of in the middle, or None."""
    warnings: tuple[str, ...] = ()
    """Keys of ``WARNINGS``."""

    @property
    def ended(self) -> bool:
        """Return whether the end was told, by [DONE], a finish reason or the usage of all."""
        return self.done or self.finish is not None or self.summed


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    outputs: list[tuple[int, Output, int | None]] = field(default_factory=list)
    """Instant, output, and the count that the same event tells."""
    finish: str | None = None
    usage: dict[str, Any] | None = None
    first_ns: int | None = None
    done: bool = False
    summed: bool = False
    problem: str | None = None
    failure: str | None = None
    warnings: set[str] = field(default_factory=set)


def read_stream(chunks: Chunks, *, encoding: str | None = None) -> Stream:
    """Read an answer from the bytes that were received.

    Args:
        chunks: Instants and bytes.
        encoding: Of the content, as the header says.
    """
    reader = StreamReader()
    try:
        plain = unpacked(chunks, encoding)
    except ValueError as error:
        return reader.ended((), problem=str(error))
    return reader.ended(plain, warnings=() if plain is chunks else ("compressed",))


class StreamReader:
    """Reads an answer while it comes; what it says does not depend on when it was read."""

    def __init__(self) -> None:
        self._reading = _Reading()
        self._events = EventReader()
        self._num_read = 0

    def read(self, chunks: Chunks) -> None:
        """Read what has come since the last time.

        Args:
            chunks: Instants and bytes from the answer's first one on, without a content encoding.
        """
        for at_ns, received in chunks[self._num_read :]:
            for event in self._events.feed(at_ns, received):
                _take(self._reading, event)
        self._num_read = len(chunks)

    def ended(self, chunks: Chunks, *, problem: str | None = None, warnings: Sequence[str] = ()) -> Stream:
        """Return the answer, of which nothing more comes.

        Args:
            chunks: All of it.
            problem: Why it cannot be read.
            warnings: What was seen of it elsewhere.
        """
        reading = self._reading
        reading.problem = reading.problem or problem
        reading.warnings |= set(warnings)
        self.read(chunks)
        for event in self._events.close(chunks[-1][0] if chunks else 0):
            _take(reading, event)
        if reading.first_ns is None and not (reading.done or reading.problem or reading.failure):
            reading.failure = _whole_error(b"".join(received for _, received in chunks))
        return _stream(reading)


def _whole_error(body: bytes) -> str | None:
    """Return the error that a body tells of which is no stream at all."""
    try:
        said = json.loads(body)
    except ValueError:
        return None
    return error_of(said) if isinstance(said, dict) else None


def _take(reading: _Reading, event: ServerEvent) -> None:
    """Read one event; without an empty line behind it, it counts if it is whole."""
    data = b"\n".join(line for _, line in event.data)
    problem = _read(reading, event.at_ns, data, event.name)
    lines = [(at_ns, line) for at_ns, line in event.data if line.strip()]
    if problem is not None and len(lines) > 1 and all(_whole(line) for _, line in lines):
        reading.warnings.add("one_newline")
        for at_ns, line in lines:
            problem = _read(reading, at_ns, line, event.name)
            if problem is not None:
                break
    if problem is None:
        reading.warnings |= {"bare_json"} if event.bare else set()
        reading.warnings |= set() if event.ended or event.bare else {"no_empty_line"}
    elif reading.problem is None and not event.bare:
        reading.problem = problem if event.ended else f"the stream ends within an event: {data[:80]!r}"


def _whole(line: bytes) -> bool:
    """Return whether a line is an event's data by itself."""
    if line.strip() == DONE:
        return True
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _read(reading: _Reading, at_ns: int, data: bytes, name: str) -> str | None:
    """Read an event's data; return what is wrong with it."""
    if name == ERROR:
        reading.failure = reading.failure or _failure(data)
        return None
    if not data.strip():
        return None  # keeps the connection alive
    if data.strip() == DONE:
        reading.done = True
        return None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")  # as the standard says
        reading.warnings.add("bad_utf8")
    try:
        said = json.loads(text)
    except ValueError as error:
        broken = BROKEN_ERROR.match(text)
        if broken is None:
            return f"{type(error).__name__} in event {data[:80]!r}: {error}"
        reading.failure = reading.failure or shortened(broken[1].strip().removesuffix("}").strip(' "'))
        return None
    try:
        _tell(reading, at_ns, said)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        return f"{type(error).__name__} in event {data[:80]!r}: {error}"
    return None


def _failure(data: bytes) -> str:
    """Return what an event says that is called an error."""
    return reason_of(data) if data.strip() else f"an event called '{ERROR}', without words"


def _tell(reading: _Reading, at_ns: int, said: dict[str, Any]) -> None:
    failure = error_of(said)
    if failure is not None:
        reading.failure = reading.failure or failure
        return
    if said.get("type") == KEEP_ALIVE:
        return
    # Any event, a role or a usage too: the first token has an instant of its own, and the two are told apart.
    if reading.first_ns is None:
        reading.first_ns = at_ns
    usage = said.get("usage")
    if usage:
        reading.usage = dict(usage)
    if "usage" not in said and "choices" not in said:
        raise KeyError("choices")
    choices = said.get("choices") or ()
    reading.summed = reading.summed or bool(usage and not choices)
    for choice in choices:
        if choice.get("index") not in (None, 0):
            reading.warnings.add("other_choices")
            continue
        output = output_of(choice)
        if output.unknown:
            reading.warnings.add("unknown_part")
        if output.length or output.token_ids or output.called:
            if reading.done:
                reading.warnings.add("after_done")
            count = _count(reading, usage, "completion_tokens") if usage else None
            reading.outputs.append((at_ns, output, count))
        reading.finish = choice.get("finish_reason") or reading.finish
        if reading.finish == "error":
            reading.failure = reading.failure or "the finish reason is 'error'"


def _stream(reading: _Reading) -> Stream:
    usage = reading.usage or {}
    told = _count(reading, usage, "completion_tokens")
    outputs = [output for _, output, _ in reading.outputs]
    known = [output.token_ids for output in outputs]
    ids = tuple(i for part in known if part for i in part) if known and None not in known else None
    if ids is None and any(part is not None for part in known):
        reading.warnings.add("some_ids")
    details = usage.get("prompt_tokens_details")
    prompt_tokens = _count(reading, usage, "prompt_tokens")
    cached_tokens = _count(reading, details, "cached_tokens") if isinstance(details, dict) else None
    counted_by, weights = _weights(reading, ids, told)
    if ids is not None and told == len(ids) + 1:
        reading.warnings.add("end_token")
    return Stream(
        pieces=tuple(
            Piece(at_ns, tokens, output.kind)
            for (at_ns, output, _), tokens in zip(reading.outputs, weights, strict=True)
        ),
        text="".join(output.text for output in outputs),
        thinking="".join(output.thinking for output in outputs),
        token_ids=ids,
        tokens=round(sum(weights)),
        counted_by=counted_by,
        usage_tokens=None if "other_choices" in reading.warnings else told,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached_tokens,
        finish=reading.finish,
        done=reading.done,
        summed=reading.summed,
        problem=reading.problem,
        failure=reading.failure,
        warnings=tuple(sorted(reading.warnings)),
    )


def _count(reading: _Reading, usage: dict[str, Any], name: str) -> int | None:
    """Return a count of a usage; None where it has none, or what is none, which is named."""
    value = usage.get(name)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value == int(value):
        return int(value)
    reading.warnings.add("odd_usage")
    return None


def _weights(
    reading: _Reading, ids: tuple[int, ...] | None, told: int | None
) -> tuple[CountedBy, list[float]]:
    """Return how many tokens each output holds, and who says so."""
    outputs = [output for _, output, _ in reading.outputs]
    if ids is not None:
        return "token_ids", [float(len(output.token_ids or ())) for output in outputs]
    if told and outputs and "other_choices" not in reading.warnings:
        running = [count for _, _, count in reading.outputs]
        counts = [count for count in running if count is not None]
        if len(counts) == len(running) and len(counts) > 1:
            steps = [b - a for a, b in itertools.pairwise([0, *counts])]
            if min(steps) >= 0 and counts[-1] == told:
                return "running_usage", [float(step) for step in steps]
            reading.warnings.add("usage_jumps")
        return "usage", _shares(told, [max(output.length, 1) for output in outputs])
    return "chunks", [1.0] * len(outputs)


def _shares(tokens: int, lengths: Sequence[int]) -> list[float]:
    """Divide tokens over events: equally where that gives whole tokens, else by their texts' lengths."""
    if tokens % len(lengths) == 0:
        return [float(tokens // len(lengths))] * len(lengths)
    characters = sum(lengths)
    return [tokens * length / characters for length in lengths]


OF_SENDING = frozenset({"redirected", "resent"})
"""Warnings that say how a call was sent, whatever became of its answer."""


def count_warnings(streams: Sequence[Stream], unanswered: Sequence[Stream] = ()) -> dict[str, int]:
    """Count the warnings of several answers, and of those that are none how their calls were sent."""
    found = Counter(w for s in streams for w in s.warnings)
    found.update(w for s in unanswered for w in s.warnings if w in OF_SENDING)
    return dict(sorted(found.items()))
