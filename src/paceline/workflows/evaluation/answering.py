"""Lets a method answer one question on traces that are drawn whole, kept, and shown to it as far as it has asked.

Equal numbers are equal traces in all methods, so each trace is paid once however many methods use it, and methods are
compared on the same luck. What a method would have cost alone is counted beside: tokens up to where it let a trace go,
prompts as often as it would have sent them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.families.reasoning.core.backends.token_texts import END, Texts
from paceline.families.reasoning.core.language import Continuation, Draw, Piece
from paceline.workflows.evaluation.journal import CLOSE, GREEDY, OPEN, Kept, Shelf
from paceline.workflows.evaluation.sources import CallFailedError, Source, digest_of

NO_LIMIT = 1 << 40
"""Context of the executor: how long a trace may get the source decides, in its own tokens."""


class Words:
    """Numbers of texts for all questions, in the place of a tokenizer; implements ``Writer``. Thread-safe."""

    def __init__(self) -> None:
        self._texts, self._lock = Texts(), threading.Lock()

    def encode(self, text: str) -> tuple[int, ...]:
        """Return a text as one token."""
        return (self.number(text),) if text else ()

    def number(self, text: str) -> int:
        """Return a text's number."""
        with self._lock:
            return self._texts.number(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        with self._lock:
            return self._texts.text(tokens)

    def chat(self, question: str) -> tuple[int, ...]:
        """Return a prompt; the source knows how it is asked."""
        return self.encode(question)


@dataclass(slots=True, kw_only=True)
class Alone:
    """What a question would have cost a method by itself."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 0
    failed_probes: int = 0
    critical_s: float = 0.0
    """Sum over rounds of the longest request, for traces that were let go in the middle by their share of tokens."""


@dataclass(slots=True, kw_only=True)
class _Open:
    """One trace of a method."""

    number: int | None
    """Of the sample; None of a copy that a probe continues."""
    text: str
    """All behind the prompt when it was opened."""
    lead: str = ""
    """What its reader is shown again before its own words: the end of thinking that a probe cuts short."""
    tokens: list[int] = field(default_factory=list)
    shown: int = 0
    kept: Kept | None = None
    wanted: int = 0


class QuestionModel:
    """A question's traces as a ``LanguageModel``: draws what is not on the shelf, and shows it as it is asked for.

    Args:
        source: Draws traces.
        shelf: The question's.
        problem: Its key.
        question: Its text.
        words: Numbers of texts.
        identity: The model's name.
    """

    context = NO_LIMIT
    num_parameters = None

    def __init__(
        self, source: Source, shelf: Shelf, problem: int, question: str, words: Words, identity: str
    ) -> None:
        self._source, self._shelf, self._problem, self._question = source, shelf, problem, question
        self._words, self.identity = words, identity
        self._handles = itertools.count()
        self._open: dict[int, _Open] = {}
        self.alone = Alone()

    def begin(self, prompt: Sequence[int], draw: Draw) -> int:
        """Open a sample; the key's last number says which, and a key of two is the greedy one's."""
        number = draw.key[2] if len(draw.key) > 2 else GREEDY
        if len(prompt) != 1:
            raise CallFailedError("a text of its own cannot be continued as another trace here")
        return self._add(_Open(number=number, text=""))

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        """Open a copy for a probe: the model's own text, and what it is made to go on by."""
        parent = self._open[trace]
        if draw.temperature > 0:
            raise CallFailedError("copies that draw tokens of their own are not available here")
        text = parent.text + self._words.decode(parent.tokens[: parent.shown])
        asked = self._words.decode(forced)
        # What stands in open thinking is no answer: a probe that cuts it short has to end it.
        lead = CLOSE + asked if text.startswith(OPEN) and CLOSE not in text else ""
        return self._add(_Open(number=None, text=text + (lead or asked), lead=lead))

    def merge(self, trace: int, forks: Sequence[int], forced: Sequence[int], draw: Draw) -> int:
        """Refuse: nobody has the keys and values."""
        raise CallFailedError("caches cannot be merged here")

    def share(self, trace: int, openings: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        """Refuse: nobody has the keys and values."""
        raise CallFailedError("traces cannot see each other here")

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        """Refuse: texts are written and not scored."""
        raise CallFailedError("texts cannot be scored here")

    def advance(self, trace: int, tokens: int, stop: Collection[int] = ()) -> None:
        """Ask for tokens."""
        self._open[trace].wanted = tokens

    def poll(self) -> list[Piece]:
        """Draw what is missing, all of a round together, and show what was asked for.

        Raises:
            CallFailedError: A request failed for good.
            SpentError: A budget is used up.
        """
        going = {handle: one for handle, one in self._open.items() if one.wanted}
        new = [one for one in going.values() if one.kept is None]
        samples = [one.number for one in new if one.number is not None]
        missing = [number for number in samples if number not in self._shelf.traces]
        self._draw(missing)
        for one in new:
            one.kept = self._probed(one) if one.number is None else self._shelf.traces[one.number]
            one.tokens = self._numbers(one.kept, one.lead)
        self._count_prompts(new)
        pieces = [self._shown(handle, one) for handle, one in going.items()]
        self.alone.critical_s += max(
            (
                going[p.trace].kept.seconds * len(p.tokens) / max(len(going[p.trace].tokens), 1)  # type: ignore[union-attr]
                for p in pieces
            ),
            default=0.0,
        )
        return sorted(pieces, key=lambda piece: piece.trace)

    def _draw(self, missing: Sequence[int]) -> None:
        """Draw traces; one that failed in this run for another method is not sent again."""
        known = [self._shelf.failed[number] for number in missing if number in self._shelf.failed]
        if known:
            raise CallFailedError(known[0])
        if not missing:
            return
        try:
            self._source.draw(self._problem, self._question, missing)
        except CallFailedError as error:
            failed = (number for number in missing if number not in self._shelf.traces)
            self._shelf.failed.update(dict.fromkeys(failed, str(error)))
            raise

    def drop(self, trace: int) -> None:
        """Forget a trace; what is on the shelf stays."""
        del self._open[trace]

    def _add(self, one: _Open) -> int:
        handle = next(self._handles)
        self._open[handle] = one
        return handle

    def _probed(self, one: _Open) -> Kept:
        name = digest_of(one.text)
        if name not in self._shelf.probes:
            try:
                self._source.probe(self._problem, self._question, one.text, one.wanted)
            except CallFailedError:
                # A probe beyond the context, or one that was refused, has no answer; its trace goes on.
                self.alone.failed_probes += 1
                return Kept(text="", thinking="", finish="length", tokens=0, prompt_tokens=0, seconds=0.0)
        return self._shelf.probes[name]

    def _numbers(self, kept: Kept, lead: str) -> list[int]:
        """Return as many tokens as the trace has, whose texts together are its own."""
        whole, count = lead + kept.whole, kept.tokens
        if not count:
            return []
        if kept.pieces and "".join(kept.pieces) == whole and len(kept.pieces) <= count:
            texts = [*kept.pieces, *[""] * (count - len(kept.pieces))]
        else:
            bounds = [round(len(whole) * place / count) for place in range(count + 1)]
            texts = [whole[low:high] for low, high in itertools.pairwise(bounds)]
        numbers = [self._words.number(text) for text in texts]
        if kept.finish != "length" and texts[-1] == "":
            numbers[-1] = END
        return numbers

    def _count_prompts(self, new: Sequence[_Open]) -> None:
        """Count the requests that a method would have sent for what it begins in this round."""
        samples = [one.kept for one in new if one.number is not None and one.number != GREEDY and one.kept]
        others = [one.kept for one in new if (one.number is None or one.number == GREEDY) and one.kept]
        # A batch reads its prompt once.
        for kept in (*(samples[:1] if self._source.batches else samples), *others):
            self.alone.requests += 1
            self.alone.prompt_tokens += kept.prompt_tokens

    def _shown(self, handle: int, one: _Open) -> Piece:
        assert one.kept is not None
        part = slice(one.shown, min(one.shown + one.wanted, len(one.tokens)))
        tokens = tuple(one.tokens[part])
        nothing = (0.0,) * len(tokens)
        one.shown, one.wanted = part.stop, 0
        self.alone.completion_tokens += len(tokens)
        logprobs, entropies = one.kept.logprobs[part], one.kept.entropies[part]
        return Piece(
            trace=handle,
            tokens=tokens,
            logprobs=(*logprobs, *nothing)[: len(tokens)],
            entropies=(*entropies, *nothing)[: len(tokens)],
            ended=one.shown >= len(one.tokens),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one question under one method."""

    problem: int
    """The problem's key."""
    place: int
    """Its place among the questions."""
    method: str
    status: str
    """``answered``, ``failed``, or ``left`` where a budget was used up."""
    reason: str = ""
    answer: str | None = None
    truth: str = ""
    right: bool = False
    tokens: int = 0
    """Completion tokens that the method would have decoded alone, probes included."""
    probe_tokens: int = 0
    prompt_tokens: int = 0
    """Prompt tokens that it would have sent."""
    requests: int = 0
    critical_tokens: int = 0
    """Sum over rounds of the longest request: latency without hardware."""
    critical_s: float = 0.0
    traces: int = 0
    failed_probes: int = 0
    """Probes without an answer, since their requests failed."""
    cut: int = 0
    """Traces that it let end, and that ended at the most tokens."""

    def plain(self) -> Mapping[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
