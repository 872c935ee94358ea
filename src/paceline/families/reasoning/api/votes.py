"""Votes over the answers of a question's traces: which one wins, how far they agree, and when no more are needed.

All functions are pure. Answers that could not be read (None) never vote.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence


def majority(answers: Iterable[str | None]) -> str | None:
    """Return the most frequent answer; among equals the one that came first; None when nothing could be read."""
    counts = Counter(a for a in answers if a is not None)
    # `max` returns the first of equals, and a dict keeps the order of first votes: ties go to the earliest answer.
    return max(counts, key=counts.__getitem__) if counts else None


def weighted_majority(votes: Iterable[tuple[str | None, float]]) -> str | None:
    """Return the answer with the largest sum of weights; among equals the first; None when nothing could be read.

    Args:
        votes: Answers with their weights, in the order of the traces; weights may be of any unit.
    """
    sums: dict[str, float] = {}
    for answer, weight in votes:
        if answer is not None:
            sums[answer] = sums.get(answer, 0.0) + weight
    return max(sums, key=sums.__getitem__) if sums else None


def normalised_entropy(answers: Sequence[str | None]) -> float:
    """Return the entropy of the answers over its largest value, between 0 (all agree) and 1 (all differ).

    Fewer than two answers say nothing: 1. Each answer that cannot be read counts as one that nobody shares.
    """
    if len(answers) < 2:
        return 1.0
    counts = list(Counter(a for a in answers if a is not None).values())
    # As answers of their own: traces that cannot be read must not look like agreement.
    counts += [1] * sum(a is None for a in answers)
    total = len(answers)
    # log(answers) is its value when all differ: the scale depends on how many there are, not on how many differ.
    return -sum(c / total * math.log(c / total) for c in counts) / math.log(total)


def leader_is_safe(first: int, second: int) -> float:
    """Return the probability that the present leader stays ahead of the runner-up for ever.

    With a uniform prior over the leader's share among the two, after ``first`` and ``second`` votes the share follows
    Beta(first + 1, second + 1); the value is P(share > 1/2), which for whole numbers is a binomial tail (Aggarwal et
    al., 2023, "Let's Sample Step by Step: Adaptive-Consistency", the Beta criterion).

    Args:
        first: Votes of the leader.
        second: Votes of the runner-up, no more than those.
    """
    # P(Beta(a + 1, b + 1) > 1/2) is the probability of at most a successes in a + b + 1 fair trials: exact, with no
    # integral.
    trials = first + second + 1
    return float(sum(math.comb(trials, k) for k in range(first + 1)) / 2**trials)


def top_two(answers: Iterable[str | None]) -> tuple[int, int]:
    """Return the votes of the two most frequent answers, 0 where there is none.

    Args:
        answers: Of traces; None for what could not be read, which does not vote.
    """
    counts = [n for _, n in Counter(a for a in answers if a is not None).most_common(2)] + [0, 0]
    return counts[0], counts[1]
