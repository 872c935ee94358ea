"""Exact expectations over which of a question's recorded samples a method would have drawn.

Nothing here draws at random: what a vote over k of n samples gives is counted over all k-subsets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from paceline.base.counting import number_of

Point = tuple[float, float]
"""Tokens and accuracy."""
ROUNDING = 1e-9
"""Relative error of means of whole numbers."""


def pass_at_k(num_samples: int, num_right: int, k: int) -> float:
    """Return the probability that at least one of k samples out of n is right, all k-subsets being equally likely.

    Chen et al., 2021, "Evaluating Large Language Models Trained on Code", equation 1.

    Raises:
        ValueError: k is not between 1 and n, or there are more right ones than samples.
    """
    if not 1 <= k <= num_samples or not 0 <= num_right <= num_samples:
        raise ValueError(f"pass@{k} of {number_of(num_samples, 'sample')}, {num_right} right")
    # Exact in whole numbers; 1 − (1 − c/n)^k would be biased, as samples are drawn without replacement.
    return 1.0 - math.comb(num_samples - num_right, k) / math.comb(num_samples, k)


def consensus(answers: Sequence[str | None], truth: str) -> list[float]:
    """Return cons@k for k = 1 … n: the probability that the vote of a random k-subset names the truth.

    The most frequent answer wins; equals share the win; answers that could not be read (None) take part in the draw and
    do not vote. For each number of votes t of the truth, the subsets in which no other answer has more than t are
    counted by a product of polynomials: one in the size of the subset, and one in the number of answers that tie.
    """
    n = len(answers)
    counts = Counter(a for a in answers if a is not None)
    right = counts.pop(truth, 0)
    silent = n - right - sum(counts.values())
    won = np.zeros(n + 1)
    for votes in range(1, right + 1):
        ways = np.zeros((n + 1, 1))
        # Rows count the subset's size, columns how many other answers tie with the truth.
        ways[votes] = math.comb(right, votes)
        ways = _times(ways, [math.comb(silent, i) for i in range(silent + 1)])
        for other in counts.values():
            below = [math.comb(other, i) for i in range(min(other, votes - 1) + 1)]
            tied = math.comb(other, votes) if other >= votes else 0
            ways = _times(ways, below, tied, votes)
        # With j others at the same number of votes the truth wins one time in j + 1.
        won += (ways / np.arange(1, ways.shape[1] + 1)).sum(axis=1)
    return [float(won[k]) / math.comb(n, k) for k in range(1, n + 1)]


def _times(ways: np.ndarray, below: Sequence[int], tied: int = 0, votes: int = 0) -> np.ndarray:
    """Multiply the numbers of subsets, by size and number of ties, by what one more answer may contribute."""
    size, ties = ways.shape
    found = np.zeros((size, ties + (tied > 0)))
    for votes_of_other, number in enumerate(below):
        found[votes_of_other:, :ties] += number * ways[: size - votes_of_other]
    if tied and votes < size:
        found[votes:, 1:] += tied * ways[: size - votes]
    return found


def hull(curve: Sequence[Point]) -> list[Point]:
    """Return the corners of the upper concave hull of a curve of (tokens, accuracy).

    A method that draws k traces for some questions and l for the others reaches every place between two points of the
    curve, so no method deserves credit for lying between the curve and its hull.
    """
    corners: list[Point] = []
    for x, y in curve:
        # Andrew's monotone chain: a corner below the line to the new point is none.
        while len(corners) > 1 and _rises_less(corners[-2], corners[-1], (x, y)):
            corners.pop()
        corners.append((x, y))
    return corners


def _rises_less(first: Point, middle: Point, last: Point) -> bool:
    """Whether the middle point lies on or below the line from the first to the last."""
    return (middle[1] - first[1]) * (last[0] - first[0]) <= (last[1] - first[1]) * (middle[0] - first[0])


def at_equal_tokens(curve: Sequence[Point], tokens: float) -> float | None:
    """Return the accuracy of a curve of (tokens, accuracy) at a number of tokens; None outside of the curve."""
    low, high = curve[0][0], curve[-1][0]
    if not low * (1 - ROUNDING) <= tokens <= high * (1 + ROUNDING):
        return None
    return float(np.interp(tokens, [t for t, _ in curve], [a for _, a in curve]))


def auroc(scores: Sequence[float], positive: Sequence[bool]) -> float:
    """Return the probability that a positive one scores above a negative one, equals counting half.

    Mann and Whitney's statistic over the number of pairs, from mid-ranks.

    Raises:
        ValueError: There are none of a kind.
    """
    kinds = np.asarray(positive, dtype=bool)
    num_positive = int(kinds.sum())
    num_negative = len(kinds) - num_positive
    if not num_positive or not num_negative:
        raise ValueError(f"{num_positive} positive and {num_negative} negative ones cannot be told apart")
    _, inverse, counts = np.unique(np.asarray(scores), return_inverse=True, return_counts=True)
    # Equal scores share the mean of their ranks, which counts each such pair as one half.
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    above = float(ranks[kinds].sum()) - num_positive * (num_positive + 1) / 2
    return above / (num_positive * num_negative)
