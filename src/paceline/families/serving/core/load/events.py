"""What a stream of server-sent events says: tokens with their instants, read from the log and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

DONE = "[DONE]"

CountedBy = Literal["token_ids", "usage", "chunks"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One event that holds output."""

    at_ns: int
    """Instant of the bytes that completed it."""
    tokens: float
    """How many tokens it holds; a share of the usage's number where events do not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A whole answer."""

    pieces: tuple[Piece, ...]
    text: str
    token_ids: tuple[int, ...] | None
    """None where the server does not tell them."""
    tokens: int
    """How many there are."""
    counted_by: CountedBy
    """From ids; from the server's count, where no ids came; else one for each event."""
    usage_tokens: int | None
    """What the server says that it wrote."""
    prompt_tokens: int | None
    cached_tokens: int | None
    first_event_ns: int | None
    """Of any event, with output or not, such as one that tells a role only."""
    finish: str | None
    done: bool
    """Whether the end was told."""
    problem: str | None
    """What is not as the interface says, or None."""
    failure: str | None
    """An error that the server told of in the middle, or None."""


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    outputs: list[tuple[int, str, tuple[int, ...] | None]]
    finish: str | None = None
    usage: dict[str, Any] | None = None
    first_ns: int | None = None
    done: bool = False
    problem: str | None = None
    failure: str | None = None


def read_stream(chunks: Sequence[tuple[int, bytes]]) -> Stream:
    """Read an answer from the bytes that were received.

    Events end with an empty line (HTML Living Standard, server-sent events); what is behind the last one is no event.
    """
    reading = _Reading(outputs=[])
    rest = b""
    for at_ns, received in chunks:
        # Events are cut across packets as the network likes: an event's instant is that of the bytes that complete it.
        rest += received
        # On all that is left over, so that a pair of \r and \n that two packets divide is found.
        if b"\r" in rest:
            rest = rest.replace(b"\r\n", b"\n")
        if b"\n\n" not in rest:
            continue
        *events, rest = rest.split(b"\n\n")
        for event in events:
            _take(reading, at_ns, event)
    if rest.strip() and reading.problem is None:
        reading.problem = f"the stream ends within an event: {rest[:80]!r}"
    return _stream(reading)


def _take(reading: _Reading, at_ns: int, event: bytes) -> None:
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    if not lines:
        return  # a comment, which keeps the connection alive
    data = b"\n".join(lines)
    if data == DONE.encode():
        reading.done = True
        return
    try:
        _tell(reading, at_ns, json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        if reading.problem is None:
            reading.problem = f"{type(error).__name__} in event {data[:80]!r}: {error}"


def _tell(reading: _Reading, at_ns: int, said: dict[str, Any]) -> None:
    if "error" in said:
        reading.failure = str(said["error"])[:300]
        return
    # Any event, a role or a usage too: the first token has an instant of its own, and the two are told apart.
    if reading.first_ns is None:
        reading.first_ns = at_ns
    if said.get("usage"):
        reading.usage = dict(said["usage"])
    # One answer was asked for; a last event with usage alone has no choice.
    for choice in said["choices"][:1]:
        text = choice["text"] if "text" in choice else (choice["delta"].get("content") or "")
        if not isinstance(text, str):
            raise TypeError("content is no text")
        ids = choice.get("token_ids")
        if text or ids:
            reading.outputs.append((at_ns, text, None if ids is None else tuple(int(i) for i in ids)))
        reading.finish = choice.get("finish_reason") or reading.finish


def _stream(reading: _Reading) -> Stream:
    usage = reading.usage or {}
    told = usage.get("completion_tokens")
    known = [ids for _, _, ids in reading.outputs]
    ids = tuple(i for part in known if part for i in part) if known and None not in known else None
    counted_by: CountedBy
    if ids is not None:
        # Ids are counted by nobody's word; a server's usage needs trust, and events may hold any number of tokens.
        counted_by, weights = "token_ids", [float(len(part or ())) for part in known]
    elif isinstance(told, int) and told > 0 and any(text for _, text, _ in reading.outputs):
        counted_by, weights = "usage", _shares(told, [len(text) for _, text, _ in reading.outputs])
    else:
        counted_by, weights = "chunks", [1.0] * len(reading.outputs)
    details = usage.get("prompt_tokens_details") or {}
    return Stream(
        pieces=tuple(Piece(at, n) for (at, _, _), n in zip(reading.outputs, weights, strict=True)),
        text="".join(text for _, text, _ in reading.outputs),
        token_ids=ids,
        tokens=round(sum(weights)),
        counted_by=counted_by,
        usage_tokens=told if isinstance(told, int) else None,
        prompt_tokens=usage.get("prompt_tokens"),
        cached_tokens=details.get("cached_tokens"),
        first_event_ns=reading.first_ns,
        finish=reading.finish,
        done=reading.done,
        problem=reading.problem,
        failure=reading.failure,
    )


def _shares(tokens: int, lengths: Sequence[int]) -> list[float]:
    """Divide tokens over events: equally where that gives whole tokens, else by their texts' lengths."""
    if tokens % len(lengths) == 0:
        return [float(tokens // len(lengths))] * len(lengths)
    characters = sum(lengths)
    return [tokens * length / characters for length in lengths]
