"""Statistics of answers to the same questions: what two techniques did with each of them.

Launches say how a figure scatters from draw to draw; questions say whether the same ones were won or lost. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import bdtr, stdtrit

from paceline.base.counting import number_of
from paceline.stats.estimates import CONFIDENCE

EXACT_FLIPS = 12
"""Differences up to which all their signs are tried."""
NUM_FLIPS = 9_999
MIN_PAIRS = 2
NO_SPREAD = 1e-12
"""Standard error, as a share of the largest difference, up to which it is rounding and no spread."""
POWER = 0.8
"""Chance with which a least effect would be found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two techniques on the same questions."""

    num_questions: int
    won: int
    """Questions that the technique alone answered rightly."""
    lost: int
    """Questions that the baseline alone answered rightly."""
    difference: float
    """Mean of the questions' differences, technique − baseline."""
    low: float | None
    high: float | None
    least: float | None
    """Difference that as many questions would show with a chance of 80 %; None without an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustered:
    """Several samples of each of some questions, which share their question's difficulty."""

    num_questions: int
    num_samples: int
    """Of a question."""
    mean: float
    low: float | None
    high: float | None
    between: float | None
    """Variance of questions' true means; None with fewer than two questions, or one sample of each."""
    within: float | None
    """Variance of a question's samples, in the mean of questions."""

    @property
    def share_between(self) -> float | None:
        """Share of a single sample's variance that lies between questions: more samples cannot take it away."""
        if self.between is None or self.within is None or not self.between + self.within:
            return None
        return self.between / (self.between + self.within)


def clustered(samples: Sequence[Sequence[float]]) -> Clustered:
    """Return the mean of equally many samples of each question, with its interval and where its variance lies.

    The interval is Student's t on the questions' means: samples of one question are not independent, and an interval
    over all samples is too narrow. Variances are those of the balanced one-way layout (Searle, Casella and McCulloch,
    "Variance Components", 1992, chapter 3), that between questions not below 0.

    Raises:
        ValueError: There are none, or not equally many of each question.
    """
    if len({len(of_one) for of_one in samples}) != 1 or not len(samples[0]):
        raise ValueError("equally many samples of each of one question at least")
    values = np.asarray([list(of_one) for of_one in samples], dtype=np.float64)
    count, per_question = values.shape
    means = values.mean(1)
    low = high = between = within = None
    if count >= MIN_PAIRS:
        # Of the questions' means, whose number is the sample size, however often each was asked.
        half = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2)) * float(means.std(ddof=1)) / math.sqrt(count)
        low, high = float(means.mean()) - half, float(means.mean()) + half
        if per_question >= MIN_PAIRS:
            within = float(values.var(1, ddof=1).mean())
            # A mean of m samples scatters by σ²_between + σ²_within/m; an estimate below zero says that there is none.
            between = max(float(means.var(ddof=1)) - within / per_question, 0.0)
    return Clustered(
        num_questions=count,
        num_samples=per_question,
        mean=float(means.mean()),
        low=low,
        high=high,
        between=between,
        within=within,
    )


def compare_paired(technique: Sequence[float], baseline: Sequence[float]) -> Paired:
    """Compare what two techniques got for the same questions, in the same order.

    The interval is Student's t on the questions' differences. There is none with fewer than two questions, nor where
    all differences are equal: they show no spread, which says nothing of how large it is.

    Raises:
        ValueError: They did not answer equally many.
    """
    if len(technique) != len(baseline):
        raise ValueError(
            f"{number_of(len(technique), 'answer')} beside {len(baseline)}: they are of other questions"
        )
    deltas = np.asarray(technique, dtype=np.float64) - np.asarray(baseline, dtype=np.float64)
    count = deltas.size
    low = high = least = None
    error = float(deltas.std(ddof=1)) / math.sqrt(count) if count >= MIN_PAIRS else 0.0
    if error > NO_SPREAD * float(abs(deltas).max(initial=0.0)):
        half = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2)) * error
        low, high = float(deltas.mean()) - half, float(deltas.mean()) + half
        # (t₀.₉₇₅ + t₀.₈) standard errors, as ``verdicts.minimum_detectable``.
        least = half + float(stdtrit(count - 1, POWER)) * error
    return Paired(
        num_questions=count,
        won=int((deltas > 0).sum()),
        lost=int((deltas < 0).sum()),
        difference=float(deltas.mean()) if count else math.nan,
        low=low,
        high=high,
        least=least,
    )


def mcnemar(won: int, lost: int) -> float:
    """Return the exact two-sided p-value of McNemar's test: won and lost questions are equally likely.

    McNemar, 1947; the exact form is the binomial test on the questions on which the two differ.
    """
    return min(1.0, 2 * float(bdtr(min(won, lost), won + lost, 0.5))) if won + lost else 1.0


def sign_flip(differences: Sequence[float], *, seed: int = 0) -> float:
    """Return the two-sided p-value of the permutation test that flips the signs of paired differences.

    Up to twelve differences that are not zero all signs are tried; beyond, a seeded sample of them, in which what was
    observed counts as one draw, so that the p-value is never zero (Phipson and Smyth, 2010).
    """
    # A difference of zero is the same under either sign: without it the test is the same and shorter.
    values = np.asarray([d for d in differences if d != 0], dtype=np.float64)
    if values.size == 0:
        return 1.0
    observed = abs(values.sum()) * (1 - 1e-12)  # sums of the same numbers in another order are equal
    if values.size <= EXACT_FLIPS:
        signs = np.array(list(product((-1.0, 1.0), repeat=values.size)))
        return float((abs(signs @ values) >= observed).mean())
    rng = np.random.default_rng(seed)
    signs = rng.choice((-1.0, 1.0), size=(NUM_FLIPS, values.size))
    return float(((abs(signs @ values) >= observed).sum() + 1) / (NUM_FLIPS + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down procedure (1979): the chance of any false alarm stays bounded.

    The i-th smallest of n becomes the largest of (n − j + 1) · p for j up to i, at most 1; the order is the argument's.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(order):
        # Adjusted values must not fall along the order, or a weaker result would be claimed before a stronger one.
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted
