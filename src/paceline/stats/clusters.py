"""Paired differences whose items come in groups: questions of one text, one subject, or one template. Pure."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from paceline.base.counting import number_of
from paceline.stats.estimates import CONFIDENCE
from paceline.stats.paired import MIN_PAIRS, NO_SPREAD, POWER


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteredDifference:
    """The mean of paired differences, with an error that allows for groups."""

    num_items: int
    num_clusters: int
    difference: float
    error: float | None
    """Standard error; None with fewer than two clusters."""
    plain_error: float | None
    """As if every item were a cluster of its own."""
    low: float | None
    high: float | None
    p_value: float | None
    least: float | None
    """Difference that as many clusters would show with a chance of 80 %."""


def clustered_difference(
    left: Sequence[float], right: Sequence[float], clusters: Sequence[Hashable]
) -> ClusteredDifference:
    """Return the mean of left − right, item by item.

    With d the differences, n items in G clusters, the squared error is G/(G − 1) · Σ_g (Σ_{i in g} (d_i − mean))² / n²
    (Liang and Zeger, 1986; Miller, 2024, "Adding Error Bars to Evals", section 2.2, without the factor). With every
    item a cluster of its own that is the variance over n. Interval and test are Student's t with G − 1 degrees.

    Where the error is 0 there is no interval, and the p-value is that of flipping the clusters' signs, 2 / 2^G, or 1
    without a difference: clusters that are all alike show no spread, which says nothing of how large it is.

    Raises:
        ValueError: There are not equally many of each.
    """
    if not len(left) == len(right) == len(clusters):
        raise ValueError(f"{len(left)}, {len(right)} and {number_of(len(clusters), 'item')}")
    deltas = np.asarray(left, dtype=np.float64) - np.asarray(right, dtype=np.float64)
    names = {name: place for place, name in enumerate(dict.fromkeys(clusters))}
    mean = float(deltas.mean()) if deltas.size else math.nan
    error = _error(deltas - mean, np.array([names[one] for one in clusters], dtype=np.int64))
    low = high = p_value = least = None
    if error is not None and error <= NO_SPREAD * float(abs(deltas).max()):
        error = 0.0
        p_value = 1.0 if mean == 0 else 2.0 ** (1 - len(names))
    elif error is not None:
        freedom = len(names) - 1
        half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
        low, high = mean - half, mean + half
        least = half + float(stdtrit(freedom, POWER)) * error
        p_value = 2 * float(stdtr(freedom, -abs(mean) / error))
    return ClusteredDifference(
        num_items=deltas.size,
        num_clusters=len(names),
        difference=mean,
        error=error,
        plain_error=_error(deltas - mean, np.arange(deltas.size)),
        low=low,
        high=high,
        p_value=p_value,
        least=least,
    )


def _error(centred: np.ndarray, clusters: np.ndarray) -> float | None:
    count = int(clusters.max()) + 1 if clusters.size else 0
    if count < MIN_PAIRS:
        return None
    sums = np.bincount(clusters, weights=centred, minlength=count)
    return math.sqrt(count / (count - 1) * float((sums**2).sum())) / centred.size
