"""Every token that a model ever decoded, so that a rule can be tried again on the same traces.

A trace is named by what decides its tokens: those it began after, and its draw. ``Recording`` writes down what a model
decodes; ``Replay`` is a model that answers from what was written down, and asks a real one only for what is missing,
such as a probe at a place where no rule has stopped before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from paceline.families.reasoning.language import Draw, LanguageModel, Piece

Name = tuple[tuple[int, ...], tuple[int, ...], float]
"""Tokens before the first decoded one, key and temperature of the draw."""


@dataclass(slots=True)
class Line:
    """What is known of one trace's decoded tokens."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    ended: bool = False

    def end(self, begin: int, upto: int, stop: Collection[int]) -> int | None:
        """Return where a piece ends that begins at a token; None when that has not been written down."""
        for place in range(begin, min(upto, len(self.tokens))):
            if self.tokens[place] in stop:
                return place + 1
        if len(self.tokens) >= upto:
            return upto
        return len(self.tokens) if self.ended else None


def digest_of(*parts: str) -> str:
    """Return the SHA-256 of several texts."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


class MissingTraceError(LookupError):
    """A trace that was never recorded is needed, and there is no model to decode it."""


class Archive:
    """All recorded traces of one model."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self._lines: dict[Name, Line] = {}
        self.scores: dict[tuple[tuple[int, ...], tuple[int, ...]], list[float]] = {}
        """By prompt and continuation."""

    def line(self, name: Name) -> Line:
        """Return a trace's line, an empty one when it is new."""
        return self._lines.setdefault(name, Line())

    def known(self, name: Name) -> Line:
        """Return a trace's line without making a new one."""
        return self._lines.get(name, Line())

    @property
    def num_tokens(self) -> int:
        """Decoded tokens of all traces."""
        return sum(len(line.tokens) for line in self._lines.values())

    def digest(self) -> str:
        """Return the SHA-256 of all traces' names and tokens, in order of their names."""
        found = hashlib.sha256()
        for name in sorted(self._lines):
            line = self._lines[name]
            found.update(repr((name, line.tokens, line.ended)).encode())
        return found.hexdigest()

    def add(self, name: Name, at: int, piece: Piece) -> None:
        """Write a piece down that begins after ``at`` decoded tokens.

        Raises:
            ValueError: Another token was written down there before: the same draw has given other tokens.
        """
        line = self.line(name)
        for i, token in enumerate(piece.tokens):
            if at + i < len(line.tokens):
                if line.tokens[at + i] != token:
                    raise ValueError(
                        f"token {at + i} of draw {name[1]} was {line.tokens[at + i]}, now {token}"
                    )
                continue
            line.tokens.append(token)
            line.logprobs.append(piece.logprobs[i])
            line.entropies.append(piece.entropies[i])
        line.ended = line.ended or piece.ended


class Recording:
    """A model whose traces are written down."""

    def __init__(self, model: LanguageModel, archive: Archive) -> None:
        if archive.identity != model.identity:
            raise ValueError(f"the archive holds traces of {archive.identity}, and not of {model.identity}")
        self._model, self._archive = model, archive
        self._open: dict[int, tuple[Name, list[int]]] = {}

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

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        """Open a copy of a trace that goes on otherwise."""
        handle = self._model.fork(trace, forced, draw)
        (before, _, _), tokens = self._open[trace]
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

    def _present(self, trace: int) -> tuple[int, ...]:
        (before, _, _), tokens = self._open[trace]
        return (*before, *tokens)

    def advance(self, trace: int, tokens: int, stop: Collection[int] = ()) -> None:
        """Ask the model to go on."""
        self._model.advance(trace, tokens, stop)

    def poll(self) -> list[Piece]:
        """Let the model decode, and write down what is complete."""
        pieces = self._model.poll()
        for piece in pieces:
            name, tokens = self._open[piece.trace]
            self._archive.add(name, len(tokens), piece)
            tokens.extend(piece.tokens)
        return pieces

    def score(self, prompt: Sequence[int], continuation: Sequence[int]) -> list[float]:
        """Score with the model, and write it down."""
        found = self._model.score(prompt, continuation)
        self._archive.scores[tuple(prompt), tuple(continuation)] = found
        return found

    def drop(self, trace: int) -> None:
        """Forget a trace; what was written down stays."""
        self._model.drop(trace)
        del self._open[trace]


Recipe = Callable[[LanguageModel], int]
"""Opens a trace on a model whose cache its tokens alone do not give."""


@dataclass(slots=True)
class _Open:
    name: Name
    at: int = 0
    recipe: Recipe | None = None
    origin: tuple[int, int] | None = None
    """Trace that it is a fork of, and how many tokens that one had decoded then."""
    forced: tuple[int, ...] = ()
    live: int | None = None
    """The live model's trace, kept where it had to be decoded: what continues it need not be read again."""
    live_at: int = 0
    """Tokens that the live trace has decoded."""


class Replay:
    """A model that answers from an archive.

    Args:
        archive: The recorded traces.
        live: Decodes what is missing, from the trace's first token on, and records it; None refuses.
    """

    def __init__(self, archive: Archive, live: LanguageModel | None = None, *, context: int) -> None:
        self.archive = archive
        self._live = None if live is None else Recording(live, archive)
        self._context = context
        self._open: dict[int, _Open] = {}
        self._wanted: dict[int, tuple[int, Collection[int]]] = {}
        """Tokens up to which, and after which, each trace under way goes on."""
        self._next = 0
        self.num_decoded = 0
        """Tokens that the live model had to decode."""

    @property
    def identity(self) -> str:
        """Return the name of the model that the traces are of."""
        return self.archive.identity

    @property
    def context(self) -> int:
        """Return the longest trace."""
        return self._context

    @property
    def num_parameters(self) -> int | None:
        """Return the live model's."""
        return None if self._live is None else self._live.num_parameters

    def begin(self, prompt: Sequence[int], draw: Draw) -> int:
        """Open a recorded trace at its beginning."""
        return self._new((tuple(prompt), draw.key, draw.temperature))

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        """Open the trace that a copy of another one became."""
        parent = self._open[trace]
        before, present = parent.name[0], self._present(trace)
        recipe = None
        if parent.recipe is not None:
            recipe = _forked(parent.recipe, (*present[len(before) :], *forced), draw)
        handle = self._new(((*present, *forced), draw.key, draw.temperature), recipe)
        self._open[handle].origin, self._open[handle].forced = (trace, parent.at), tuple(forced)
        return handle

    def merge(self, trace: int, forks: Sequence[int], forced: Sequence[int], draw: Draw) -> int:
        """Open the trace that a merge became."""
        present = self._present(trace)
        written = [self._present(fork)[len(present) :] for fork in forks]
        before = (*present, *(token for one in written for token in one), *forced)
        recipe = _merged(present, written, tuple(forced), draw)
        return self._new((before, draw.key, draw.temperature), recipe)

    def _present(self, trace: int) -> tuple[int, ...]:
        """Return all tokens of a trace."""
        at = self._open[trace]
        return (*at.name[0], *self.archive.known(at.name).tokens[: at.at])

    def advance(self, trace: int, tokens: int, stop: Collection[int] = ()) -> None:
        """Ask for tokens; ``poll`` has them.

        Raises:
            ValueError: The trace has ended or is under way.
        """
        at = self._open[trace]
        line = self.archive.known(at.name)
        if trace in self._wanted or (line.ended and at.at >= len(line.tokens)):
            raise ValueError(f"trace {trace} has ended or is under way")
        self._wanted[trace] = (at.at + tokens, stop)

    def poll(self) -> list[Piece]:
        """Return everything that was asked for.

        Raises:
            MissingTraceError: Something was never recorded, and there is no model to decode it.
        """
        self._decode_missing()
        pieces = []
        for handle in self._wanted:
            at, end = self._open[handle], self._end(handle)
            line = self.archive.known(at.name)
            assert end is not None
            span = slice(at.at, end)
            pieces.append(
                Piece(
                    trace=handle,
                    tokens=tuple(line.tokens[span]),
                    logprobs=tuple(line.logprobs[span]),
                    entropies=tuple(line.entropies[span]),
                    ended=line.ended and end == len(line.tokens),
                )
            )
            at.at = end
        self._wanted.clear()
        return pieces

    def score(self, prompt: Sequence[int], continuation: Sequence[int]) -> list[float]:
        """Return a recorded score, or let the live model score.

        Raises:
            MissingTraceError: It was never recorded, and there is no model.
        """
        found = self.archive.scores.get((tuple(prompt), tuple(continuation)))
        if found is not None:
            return found
        if self._live is None:
            raise MissingTraceError("a step was not recorded that a review asks for")
        return self._live.score(prompt, continuation)

    def drop(self, trace: int) -> None:
        """Close a trace."""
        self._wanted.pop(trace, None)
        at = self._open.pop(trace)
        if at.live is not None and self._live is not None:
            self._live.drop(at.live)

    def _new(self, name: Name, recipe: Recipe | None = None) -> int:
        self._next += 1
        self._open[self._next] = _Open(name, recipe=recipe)
        return self._next

    def _decode_missing(self) -> None:
        missing = {self._open[h].name: h for h in self._wanted if self._end(h) is None}
        if not missing:
            return
        if self._live is None:
            raise MissingTraceError(f"{len(missing)} traces were not recorded far enough")
        under_way = {self._go_live(self._live, handle): handle for handle in missing.values()}
        while under_way:
            for piece in self._live.poll():
                self.num_decoded += len(piece.tokens)
                handle = under_way[piece.trace]
                at = self._open[handle]
                at.live_at += len(piece.tokens)
                if self._end(handle) is None:  # it stopped at a place that lies before what is wanted
                    self._advance_live(self._live, handle)
                    continue
                del under_way[piece.trace]
                if piece.ended:
                    at.live = None
                    self._live.drop(piece.trace)

    def _go_live(self, live: LanguageModel, handle: int) -> int:
        """Let the live model go on with a trace, from the nearest place that it still knows."""
        at = self._open[handle]
        if at.live is not None and at.live_at != at.at:  # what was recorded meanwhile, it has not read
            live.drop(at.live)
            at.live = None
        if at.live is None:
            draw, at.live_at = Draw(key=at.name[1], temperature=at.name[2]), 0
            parent = None if at.origin is None else self._open.get(at.origin[0])
            if (
                parent
                and at.origin
                and parent.live is not None
                and parent.live_at == at.origin[1] == parent.at
            ):
                at.live = live.fork(parent.live, at.forced, draw)
            else:
                at.live = at.recipe(live) if at.recipe else live.begin(at.name[0], draw)
        self._advance_live(live, handle)
        return at.live

    def _advance_live(self, live: LanguageModel, handle: int) -> None:
        at, (upto, stop) = self._open[handle], self._wanted[handle]
        assert at.live is not None
        live.advance(at.live, upto - at.live_at, stop)

    def _end(self, handle: int) -> int | None:
        """Return where the piece ends that a trace under way waits for; None when that was never recorded."""
        at, (upto, stop) = self._open[handle], self._wanted[handle]
        return self.archive.known(at.name).end(at.at, upto, stop)


def _forked(parent: Recipe, forced: tuple[int, ...], draw: Draw) -> Recipe:
    def opened(live: LanguageModel) -> int:
        base = parent(live)
        found = live.fork(base, forced, draw)
        live.drop(base)
        return found

    return opened


def _merged(
    present: tuple[int, ...], written: Sequence[tuple[int, ...]], forced: tuple[int, ...], draw: Draw
) -> Recipe:
    def opened(live: LanguageModel) -> int:
        base = live.begin(present, draw)
        forks = [live.fork(base, one, draw) for one in written]
        found = live.merge(base, forks, forced, draw)
        for handle in (base, *forks):
            live.drop(handle)
        return found

    return opened
