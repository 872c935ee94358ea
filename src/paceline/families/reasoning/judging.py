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

from paceline.families.reasoning import estimates
from paceline.families.reasoning.metric_specs import ANOTHER_MODELS
from paceline.families.reasoning.pool import Pool
from paceline.families.reasoning.replay import MissingTraceError
from paceline.families.reasoning.requests import Finished, Method
from paceline.families.reasoning.setting import Archives, Setting
from paceline.worker.session import CaseError

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


def gain(pool: Pool, found: Reordered, finished: Sequence[Finished]) -> tuple[float | None, str]:
    """Return the accuracy above that of plain votes that cost as many tokens; None, with the reason, beyond them."""
    if any(one.ledger.by_partner or one.ledger.reviewed for one in finished):
        return None, ANOTHER_MODELS
    plain = estimates.at_equal_tokens(estimates.hull(pool.curve), found.tokens)
    if plain is None:
        low, high = pool.curve[0][0], pool.curve[-1][0]
        return None, f"{found.tokens:.0f} tokens; votes cost {low:.0f} to {high:.0f}"
    return found.accuracy - plain, ""


def answers_kept(pool: Pool, finished: Sequence[Finished], temperature: float) -> tuple[float | None, str]:
    """Return the share of the different answers of all traces that are left among those a technique let finish."""
    present = kept = own = 0
    for one in finished:
        answers = pool.answers[one.number]
        samples = [s for s in one.stories if s.index is not None and not s.partner and s.tokens]
        samples = [s for s in samples if s.temperature == temperature]
        own += len(samples)
        ended = {s.index for s in samples if s.ended and s.index is not None}
        present += len({a for a in answers if a is not None})
        kept += len({answers[i] for i in ended if answers[i] is not None})
    if not present or not own:
        return None, "none of the launch's own traces has an answer, or was begun"
    return kept / present, ""


def judge_auroc(pool: Pool, finished: Sequence[Finished]) -> tuple[float | None, str]:
    """Return how well a technique's comparisons told pairs of traces apart that come to one answer, and that do not."""
    scores, alike = [], []
    for one in finished:
        answers = pool.answers[one.number]
        for comparison in one.comparisons:
            first, second = (answers[i] for i in comparison.indices)
            scores.append(comparison.probability)
            alike.append(first is not None and first == second)
    if not any(alike) or all(alike):
        return None, f"{len(alike)} pairs were compared, {sum(alike)} of them alike"
    return estimates.auroc(scores, alike), ""
