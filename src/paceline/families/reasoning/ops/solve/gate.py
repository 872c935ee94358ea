"""What a technique must pass before any of its figures counts: the same traces, the same answers again.

Its traces are the launch's own, token for token. The executor has seen each of its answers in a trace or probe. Run
once more on what was recorded, it asks for the same and answers the same. Every run over the questions is of a module
that was executed anew, and one order is replayed before all others and again at the end: what a technique has learnt
about the questions meanwhile must not show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from paceline.families.reasoning.api.requests import Finished, Method
from paceline.families.reasoning.core.block.pool import Pool
from paceline.families.reasoning.core.block.setting import Archives, Setting
from paceline.families.reasoning.core.recordings.replay import MissingTraceError
from paceline.worker.ranks.session import CaseError

Make = Callable[[], Method]
"""Makes a technique's method, of a module that was executed anew."""


def check_traces(setting: Setting, pool: Pool, finished: Sequence[Finished]) -> int:
    """Compare a technique's samples with the launch's own; return how many were compared.

    Greedy ones and the partner's are other traces and have nothing to be compared with.

    Raises:
        CaseError: ``invalid``: equal draws gave other tokens, which is the harness's or the model's fault.
    """
    compared = 0
    for one in finished:
        for story in one.stories:
            own = story.index is not None and story.tokens and not story.partner
            if not own or story.temperature != setting.task.temperature:
                continue
            assert story.index is not None
            compared += 1
            if pool.traces[one.number][story.index][: len(story.tokens)] != story.tokens:
                reason = f"question {one.number}: equal draws gave other tokens in trace {story.index}"
                raise CaseError("invalid", reason)
    return compared


def check_replay(setting: Setting, make: Make, finished: Sequence[Finished], archives: Archives) -> None:
    """Run a technique again on what it was told.

    Raises:
        CaseError: ``incorrect``: it asks for something else, or answers otherwise.
    """
    try:
        again = setting.run(setting.replaying(archives, live=False), make())
    except MissingTraceError as error:
        raise CaseError("incorrect", f"on the same traces it asks for others: {error}") from error
    _check_equal(finished, again)


def _check_equal(before: Sequence[Finished], after: Sequence[Finished]) -> None:
    for one, other in zip(before, after, strict=True):
        if one != other:
            what = "answers" if one.answer != other.answer else "asks"
            raise CaseError("incorrect", f"question {one.number}: on the same traces it {what} otherwise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reordered:
    """Means over orders of the recorded traces, for each question."""

    right: tuple[float, ...]
    spent: tuple[float, ...]
    """Tokens."""
    decoded: int
    """Tokens of probes and forks that had to be decoded for it."""

    @property
    def accuracy(self) -> float:
        """Return the mean over questions."""
        return fmean(self.right)

    @property
    def tokens(self) -> float:
        """Return the mean over questions."""
        return fmean(self.spent)


def replay(setting: Setting, pool: Pool, make: Make, order: int) -> tuple[list[Finished], int]:
    """Run a technique on another order of the launch's traces; return also how many tokens had to be decoded."""
    before = pool.archives.num_tokens
    finished = setting.run(setting.replaying(pool.archives, live=True), make(), setting.reordered(order))
    return finished, pool.archives.num_tokens - before


def reorder(setting: Setting, pool: Pool, make: Make, first: tuple[list[Finished], int]) -> Reordered:
    """Run a technique on all orders of the launch's traces, the first of which has been run before all else.

    Raises:
        CaseError: ``incorrect``: the first order, run again after the others, ends otherwise.
    """
    found, decoded = [first[0]], first[1]
    for order in range(1, setting.num_orders):
        finished, missing = replay(setting, pool, make, order)
        found.append(finished)
        decoded += missing
    _check_equal(first[0], replay(setting, pool, make, 0)[0])
    return Reordered(
        right=tuple(fmean(values) for values in zip(*map(setting.right, found), strict=True)),
        spent=tuple(fmean(f.ledger.total for f in of_one) for of_one in zip(*found, strict=True)),
        decoded=decoded,
    )
