"""Every token that a model ever decoded, so that a rule can be tried again on the same traces.

A trace is named by what decides its tokens: those it began after, and its draw. ``Recording`` writes down what a model
decodes; ``replay.py`` has the model that answers from what was written down.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from paceline.families.reasoning.core.language import Continuation, Draw, LanguageModel, Piece

_clock = time.perf_counter
_ZERO = _clock()

Name = tuple[tuple[int, ...], tuple[int, ...], float]
"""Tokens before the first decoded one, key and temperature of the draw."""


@dataclass(slots=True)
class Line:
    """What is known of one trace's decoded tokens."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    ended: bool = False
    begun_s: float = 0.0
    latest_s: float = 0.0
    """When it first went on and when its last token came, in seconds of a clock that all archives of a launch share."""

    def end(self, begin: int, upto: int, stop: Collection[int]) -> int | None:
        """Return where a piece ends that begins at a token; None when that has not been written down."""
        # A stop first: decoding would have ended there, however much was recorded behind it.
        for place in range(begin, min(upto, len(self.tokens))):
            if self.tokens[place] in stop:
                return place + 1
        if len(self.tokens) >= upto:
            return upto
        return len(self.tokens) if self.ended else None


def digest_of(*parts: str) -> str:
    """Return the SHA-256 of several texts."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


class Archive:
    """All recorded traces of one model."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.lines: dict[Name, Line] = {}
        """In the order in which they were begun."""
        self.scores: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = {}
        """By prompt and continuation."""

    def line(self, name: Name) -> Line:
        """Return a trace's line, an empty one when it is new."""
        return self.lines.setdefault(name, Line())

    def known(self, name: Name) -> Line:
        """Return a trace's line without making a new one."""
        return self.lines.get(name, Line())

    @property
    def num_tokens(self) -> int:
        """Decoded tokens of all traces."""
        return sum(len(line.tokens) for line in self.lines.values())

    def digest(self) -> str:
        """Return the SHA-256 of all traces' names and tokens, in order of their names."""
        found = hashlib.sha256()
        # By name and not by time: batches finish in any order, and the digest must not depend on it.
        for name in sorted(self.lines):
            line = self.lines[name]
            found.update(repr((name, line.tokens, line.ended)).encode())
        return found.hexdigest()

    def absorb(self, other: Archive) -> None:
        """Take over what another archive of the same model holds beyond this one; equal names have equal tokens."""
        for name, line in other.lines.items():
            known = self.lines.get(name)
            # Equal names have equal tokens, so the longer one holds the shorter.
            if known is None or len(line.tokens) > len(known.tokens) or line.ended > known.ended:
                self.lines[name] = line
        self.scores = {**other.scores, **self.scores}

    def add(self, name: Name, at: int, piece: Piece, begun_s: float = 0.0) -> None:
        """Write a piece down that begins after ``at`` decoded tokens, of a trace that went on first at a time.

        Raises:
            ValueError: Another token was written down there before: the same draw has given other tokens.
        """
        line = self.line(name)
        if not line.tokens:
            line.begun_s = begun_s
        for i, token in enumerate(piece.tokens):
            if at + i < len(line.tokens):
                # Where draws are said to repeat this is their proof, with every run.
                if line.tokens[at + i] != token:
                    raise ValueError(
                        f"token {at + i} of draw {name[1]} was {line.tokens[at + i]}, now {token}"
                    )
                continue
            line.tokens.append(token)
            line.logprobs.append(piece.logprobs[i])
            line.entropies.append(piece.entropies[i])
            line.latest_s = _clock() - _ZERO
        line.ended = line.ended or piece.ended


class Recording:
    """A model whose traces are written down."""

    def __init__(self, model: LanguageModel, archive: Archive) -> None:
        if archive.identity != model.identity:
            raise ValueError(f"the archive holds traces of {archive.identity}, and not of {model.identity}")
        self._model, self._archive = model, archive
        self._open: dict[int, tuple[Name, list[int]]] = {}
        self._begun_s: dict[int, float] = {}

    @property
    def identity(self) -> str:
        """Return the model's."""
        return self._model.identity

    @property
    def context(self) -> int:
        """Return the model's."""
        return self._model.context

    @property
    def num_parameters(self) -> int | None:
        """Return the model's."""
        return self._model.num_parameters

    def begin(self, prompt: Sequence[int], draw: Draw) -> int:
        """Open a trace."""
        handle = self._model.begin(prompt, draw)
        self._open[handle] = ((tuple(prompt), draw.key, draw.temperature), [])
        return handle

    def resume(self, name: Name, tokens: Sequence[int]) -> int:
        """Open a trace behind some of its tokens, which the model reads instead of drawing them again."""
        before, key, temperature = name
        handle = self._model.begin((*before, *tokens), Draw(key=key, temperature=temperature))
        self._open[handle] = (name, list(tokens))
        return handle

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        """Open a copy of a trace that goes on otherwise."""
        handle = self._model.fork(trace, forced, draw)
        (before, _, _), tokens = self._open[trace]
        # Named by the whole text and not by its parent: however it came about, the same text and draw have the same
        # tokens.
        self._open[handle] = (((*before, *tokens, *forced), draw.key, draw.temperature), [])
        return handle

    def merge(self, trace: int, forks: Sequence[int], forced: Sequence[int], draw: Draw) -> int:
        """Open a trace behind what forks of another one wrote."""
        handle = self._model.merge(trace, forks, forced, draw)
        (before, _, _), tokens = self._open[trace]
        present = (*before, *tokens)
        written = tuple(token for fork in forks for token in self._present(fork)[len(present) :])
        self._open[handle] = (((*present, *written, *forced), draw.key, draw.temperature), [])
        return handle

    def share(self, trace: int, openings: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        """Open traces that see each other."""
        handles = self._model.share(trace, openings, draws)
        present = self._present(trace)
        for handle, opening, draw in zip(handles, openings, draws, strict=True):
            self._open[handle] = (((*present, opening), draw.key, draw.temperature), [])
        return handles

    def _present(self, trace: int) -> tuple[int, ...]:
        (before, _, _), tokens = self._open[trace]
        return (*before, *tokens)

    def advance(self, trace: int, tokens: int, stop: Collection[int] = ()) -> None:
        """Ask the model to go on."""
        self._begun_s.setdefault(trace, _clock() - _ZERO)
        self._model.advance(trace, tokens, stop)

    def poll(self) -> list[Piece]:
        """Let the model decode, and write down what is complete."""
        pieces = self._model.poll()
        for piece in pieces:
            name, tokens = self._open[piece.trace]
            self._archive.add(name, len(tokens), piece, self._begun_s.get(piece.trace, 0.0))
            tokens.extend(piece.tokens)
        return pieces

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        """Score with the model what was not scored before, and write it down.

        In other company the same step may have a score that differs in its last digits, so only the first one counts.
        """
        known = self._archive.scores
        wanted = [(tuple(prompt), tuple(continuation)) for prompt, continuation in asked]
        # Each once: two traces of one text would otherwise be scored twice in one batch.
        fresh = [one for one in dict.fromkeys(wanted) if one not in known]
        known.update(zip(fresh, self._model.score(fresh) if fresh else (), strict=True))
        return [known[one] for one in wanted]

    def drop(self, trace: int) -> None:
        """Forget a trace; what was written down stays."""
        self._model.drop(trace)
        del self._open[trace]
        self._begun_s.pop(trace, None)
