"""A model that answers from an archive, and asks a real one only for what is missing.

Missing is, for instance, a probe at a place where no rule has stopped before. What had to be decoded stays open while
its trace does, and until the next tokens have come, so that what continues it is not read from the beginning again: a
tree drops a step in the round in which others go on behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from paceline.base.counting import number_of
from paceline.families.reasoning.core.language import Continuation, Draw, LanguageModel, Piece
from paceline.families.reasoning.core.recordings.archive import Archive, Name, Recording

Recipe = Callable[[LanguageModel], int]
"""Opens a trace on a model whose cache its tokens alone do not give."""


class MissingTraceError(LookupError):
    """A trace that was never recorded is needed, and there is no model to decode it."""


@dataclass(slots=True)
class _Open:
    name: Name
    at: int = 0
    recipe: Recipe | None = None
    origin: tuple[int, int] | None = None
    """Trace that it is a fork of, and how many tokens that one had decoded then."""
    forced: tuple[int, ...] = ()
    group: list[int] = field(default_factory=list)
    """Traces that see each other; all of them are decoded where one has to be."""
    live: int | None = None
    """The live model's trace, kept where it had to be decoded: what continues it need not be read again."""
    live_at: int = 0
    """Tokens that the live trace has decoded."""


class Replay:
    """A model that answers from an archive.

    Args:
        archive: The recorded traces.
        live: Decodes what is missing, and records it; None refuses.
        context: Most tokens of a trace.
        repeatable: Whether the live model's draws repeat; else it goes on behind what was recorded, and a trace whose
            cache its tokens do not give cannot go on.
        num_parameters: Of the model that the traces are of, where there is no live one to tell.
    """

    def __init__(
        self,
        archive: Archive,
        live: LanguageModel | None = None,
        *,
        context: int,
        repeatable: bool = True,
        num_parameters: int | None = None,
    ) -> None:
        self.archive = archive
        self._live = None if live is None else Recording(live, archive)
        self._context, self._repeatable, self._num_parameters = context, repeatable, num_parameters
        self._open: dict[int, _Open] = {}
        self._wanted: dict[int, tuple[int, Collection[int]]] = {}
        """Tokens up to which, and after which, each trace under way goes on."""
        self._dropped: dict[int, _Open] = {}
        """Since the last poll, of those that are open on the live model."""
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
        """Return the live model's, or what is known of the one that is gone."""
        return self._num_parameters if self._live is None else self._live.num_parameters

    def begin(self, prompt: Sequence[int], draw: Draw) -> int:
        """Open a recorded trace at its beginning."""
        return self._new((tuple(prompt), draw.key, draw.temperature))

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        """Open the trace that a copy of another one became."""
        parent = self._open[trace]
        before, present = parent.name[0], self._present(trace)
        recipe = None
        # Behind a merge the tokens do not give the cache: it has to be built again in the same way.
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

    def share(self, trace: int, openings: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        """Open recorded traces that saw each other."""
        present = self._present(trace)
        handles = [
            self._new(((*present, opening), draw.key, draw.temperature))
            for opening, draw in zip(openings, draws, strict=True)
        ]
        for handle in handles:
            self._open[handle].group = handles
        return handles

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
        # The same refusals as a model's, so that a rule cannot pass here and fail live.
        if trace in self._wanted or (line.ended and at.at >= len(line.tokens)):
            raise ValueError(f"trace {trace} has ended or is under way")
        self._wanted[trace] = (at.at + tokens, stop)

    def poll(self) -> list[Piece]:
        """Return everything that was asked for.

        Raises:
            MissingTraceError: Something was never recorded, and there is no model to decode it.
        """
        while missing := self._missing():
            self._decode(missing)
        self._close_dropped()
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

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        """Return recorded scores, and let the live model score what is missing.

        Raises:
            MissingTraceError: Some were never recorded, and there is no model.
        """
        wanted = [(tuple(prompt), tuple(continuation)) for prompt, continuation in asked]
        missing = [one for one in dict.fromkeys(wanted) if one not in self.archive.scores]
        if missing and self._live is None:
            raise MissingTraceError(f"{len(missing)} steps were not recorded that reviews ask for")
        if missing and self._live is not None:
            self._live.score(missing)  # which writes them down
        return [self.archive.scores[one] for one in wanted]

    def drop(self, trace: int) -> None:
        """Close a trace."""
        self._wanted.pop(trace, None)
        at = self._open.pop(trace)
        if at.live is not None:
            self._dropped[trace] = at
        if not self._open:
            self._close_dropped()

    def _close_dropped(self) -> None:
        for at in self._dropped.values():
            if at.live is not None and self._live is not None:
                self._live.drop(at.live)
        self._dropped.clear()

    def _new(self, name: Name, recipe: Recipe | None = None) -> int:
        self._next += 1
        self._open[self._next] = _Open(name, recipe=recipe)
        return self._next

    def _missing(self) -> list[int]:
        """Return traces that were not recorded far enough, one of each name."""
        # One of each name: equal names are one trace, and one decoding serves all.
        return list({self._open[h].name: h for h in self._wanted if self._end(h) is None}.values())

    def _decode(self, missing: Sequence[int]) -> None:
        if self._live is None:
            raise MissingTraceError(
                f"{number_of(len(missing), 'trace was', 'traces were')} not recorded far enough"
            )
        wanted = {h for handle in missing for h in self._open[handle].group or (handle,)}
        # What they see of each other depends on going on in step; one alone would decode other tokens.
        if not wanted <= self._wanted.keys():
            raise MissingTraceError("traces that see each other go on together")
        under_way = {self._go_live(self._live, handle): handle for handle in sorted(wanted)}
        for handle in sorted(wanted):  # only when all are open: what goes on cannot be copied
            self._advance_live(self._live, handle)
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

    def _go_live(self, live: Recording, handle: int) -> int:
        """Let the live model go on with a trace, from the nearest place that it still knows."""
        at = self._open[handle]
        if at.live is not None and at.live_at < at.at:  # what was recorded meanwhile, it has not read
            live.drop(at.live)
            at.live = None
        if at.live is None and at.group:
            self._share_live(live, [self._open[member] for member in at.group])
        if at.live is None:
            at.live, at.live_at = self._opened(live, at)
        return at.live

    def _opened(self, live: Recording, at: _Open) -> tuple[int, int]:
        """Return a live trace for one that has none, and how many of its tokens that one has read as decoded."""
        known = self.archive.known(at.name).tokens
        # Drawn again its tokens would be others than those in the archive, so they are read instead.
        if known and not self._repeatable:
            return live.resume(at.name, known), len(known)
        draw = Draw(key=at.name[1], temperature=at.name[2])
        if at.origin is not None:
            parent = self._open.get(at.origin[0]) or self._dropped.get(at.origin[0])
            # Only while the parent stands where it was copied: behind later tokens its cache holds too much.
            if parent and parent.live is not None and parent.live_at == at.origin[1] == parent.at:
                return live.fork(parent.live, at.forced, draw), 0
        return at.recipe(live) if at.recipe else live.begin(at.name[0], draw), 0

    @staticmethod
    def _share_live(live: LanguageModel, members: Sequence[_Open]) -> None:
        draws = [Draw(key=m.name[1], temperature=m.name[2]) for m in members]
        base = live.begin(members[0].name[0][:-1], draws[0])
        opened = live.share(base, [m.name[0][-1] for m in members], draws)
        live.drop(base)
        for member, handle in zip(members, opened, strict=True):
            member.live, member.live_at = handle, 0

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
