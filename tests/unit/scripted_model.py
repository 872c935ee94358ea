"""A language model whose traces are made up from their draws, for tests of what runs above a model."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from paceline.families.reasoning.core.language import Continuation, Draw, Piece
from paceline.families.reasoning.core.questions.service import SHARED

END = 99
ANSWER = 50
"""The token before an answer; answers are the numbers 0 to 9."""
PARTS = range(20, 30)
"""Tokens with which parts begin."""
PART_END = 60
STEP_END = 5
CONCLUSION = 61


def read(tokens: Sequence[int]) -> str | None:
    """Read ``… ANSWER x END``."""
    if len(tokens) >= 3 and tokens[-1] == END and tokens[-3] == ANSWER:
        return str(tokens[-2])
    return None


@dataclass
class _Open:
    before: tuple[int, ...]
    draw: Draw
    told: int = 0
    wanted: int = 0
    stop: Collection[int] = ()
    given: list[int] = field(default_factory=list)


@dataclass
class ScriptedModel:
    """Decodes one token of every trace under way in a poll, as a real model does."""

    answers: Sequence[int] = (3, 3, 3, 5)
    lengths: tuple[int, int] = (4, 30)
    silent: float = 0.0
    """Share of traces that end without an answer."""
    identity: str = "scripted"
    context: int = 200
    num_parameters: int = 100
    polls: int = 0
    open: dict[int, _Open] = field(default_factory=dict)
    most_open: int = 0
    _next: int = 0

    def script(self, before: tuple[int, ...], draw: Draw) -> list[int]:
        """Return all tokens of a trace."""
        rng = random.Random(repr((before, draw.key if draw.temperature else 0)))
        if before[-1] == ANSWER:
            return [rng.choice(self.answers), END]
        if before[-1] in PARTS and SHARED not in draw.key:
            return [*(rng.randrange(10) for _ in range(rng.randint(1, 9))), PART_END, 1, END]
        body = [rng.randrange(10) for _ in range(rng.randint(*self.lengths))]
        return [*body, END] if rng.random() < self.silent else [*body, ANSWER, rng.choice(self.answers), END]

    def begin(self, prompt: Sequence[int], draw: Draw) -> int:
        self._next += 1
        self.open[self._next] = _Open(tuple(prompt), draw)
        self.most_open = max(self.most_open, len(self.open))
        return self._next

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        return self.begin((*self.present(trace), *forced), draw)

    def merge(self, trace: int, forks: Sequence[int], forced: Sequence[int], draw: Draw) -> int:
        present = self.present(trace)
        written = [t for fork in forks for t in self.present(fork)[len(present) :]]
        return self.begin((*present, *written, *forced), draw)

    def share(self, trace: int, openings: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        present = self.present(trace)
        return [self.begin((*present, o), d) for o, d in zip(openings, draws, strict=True)]

    def present(self, trace: int) -> tuple[int, ...]:
        state = self.open[trace]
        assert not state.wanted
        return (*state.before, *self.script(state.before, state.draw)[: state.told])

    def advance(self, trace: int, tokens: int, stop: Collection[int] = ()) -> None:
        state = self.open[trace]
        if state.wanted or state.told == len(self.script(state.before, state.draw)):
            raise ValueError("the trace has ended or is under way")
        state.wanted, state.stop = tokens, stop
        state.given = []

    def poll(self) -> list[Piece]:
        self.polls += 1
        pieces = []
        for handle, state in self.open.items():
            if not state.wanted:
                continue
            script = self.script(state.before, state.draw)
            state.given.append(script[state.told])
            state.told += 1
            state.wanted = 0 if state.given[-1] in state.stop else state.wanted - 1
            ended = state.told == len(script)
            if ended or not state.wanted:
                given = tuple(state.given)
                state.wanted = 0
                pieces.append(
                    Piece(
                        trace=handle,
                        tokens=given,
                        logprobs=tuple(-0.1 * t for t in given),
                        entropies=tuple(0.1 * (t % 10) for t in given),
                        ended=ended,
                    )
                )
        return pieces

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        return [[-1.0 for _ in continuation] for _, continuation in asked]

    def drop(self, trace: int) -> None:
        del self.open[trace]
