"""What a curve that is known whole costs where it is as good as a technique: iso-accuracy tokens, for one.

The curve is that of plain votes over more and more traces, launch by launch, on the questions of that launch. What is
looked for is the factor r at which a vote of r times a technique's tokens is right as often as the technique. To look
for it in each launch and take the mean would be wrong: launches in which the vote never gets there have none, and those
that remain are the lucky ones. So the factor is not estimated by launches; for each r the differences of the launches
have a t interval, and r belongs to the answer if that holds zero (Fieller's way of turning a test into an interval).
Where even the ends of the curve are in it, the answer is open on that side, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.families.reasoning.core.estimates import hull
from paceline.stats.estimates import Estimate, Launches, compare_difference

NUM_FACTORS = 160
"""Places between the ends of a curve, in equal ratios."""

Place = tuple[float, float]
"""Cost and worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualCost:
    """What the curve costs where it is worth as much as a technique, over what the technique costs."""

    factor: float | None
    """None where the mean of the curve never is."""
    low: float | None
    high: float | None
    """None where the answer is open on that side: beyond that end of the curve."""
    least: float
    most: float
    """Ends of the curve."""
    num_launches: int

    def text(self) -> str:
        """Return it as a table shows it."""
        least, most = f"< {self.least:.3g}", f"> {self.most:.3g}"
        open_end = most if self.high is None else least
        middle = f"{open_end if self.factor is None else f'{self.factor:.3g}'} ×"
        if self.num_launches < 2:
            return f"{middle} (one launch)"
        if self.least == self.high or self.most == self.low:  # certainly beyond an end
            return middle
        low = least if self.low is None else f"{self.low:.3g}"
        high = most if self.high is None else f"{self.high:.3g}"
        return f"{middle} [{low}, {high}]"


def equal_cost(techniques: Mapping[int, Place], curves: Mapping[int, Sequence[Place]]) -> EqualCost | None:
    """Compare a technique with a curve; None where no launch has both.

    Args:
        techniques: Launch → what the technique cost there and was worth.
        curves: Launch → places of the curve, cheapest first. Between them lies their upper concave hull, which is
            reached by taking one place for some questions and another for others; behind the best place lies that one.
    """
    shared = sorted(set(techniques) & set(curves))
    if not shared or any(techniques[n][0] <= 0 for n in shared):
        return None
    known = {n: _rising(hull(curves[n])) for n in shared}
    least = max(known[n][0][0] / techniques[n][0] for n in shared)
    most = min(known[n][-1][0] / techniques[n][0] for n in shared)
    if not 0 < least < most:
        return None
    own = Launches(values={n: techniques[n][1] for n in shared}, statistic="mean")
    factors = [least, *(float(f) for f in np.geomspace(least, most, NUM_FACTORS)[1:-1]), most]
    found = _differences(known, techniques, own, factors)
    begin = next((place for place, e in enumerate(found) if _high(e) >= 0), NUM_FACTORS)
    end = next((NUM_FACTORS - place for place, e in enumerate(reversed(found)) if _low(e) <= 0), 0)
    return EqualCost(
        factor=_crossing(factors, [e.value for e in found]),
        low=factors[begin - 1] if begin else None,
        high=factors[end] if end < NUM_FACTORS else None,
        least=least,
        most=most,
        num_launches=len(shared),
    )


def _rising(curve: Sequence[Place]) -> list[Place]:
    """Return a curve that falls nowhere: who has more may use less."""
    best, found = -np.inf, []
    for cost, worth in curve:
        best = max(best, worth)
        found.append((cost, float(best)))
    return found


def _differences(
    known: Mapping[int, Sequence[Place]],
    techniques: Mapping[int, Place],
    own: Launches,
    factors: Sequence[float],
) -> list[Estimate]:
    """Return the curve's worth at each factor of the technique's cost less the technique's own."""
    worths = {
        n: np.interp(
            np.multiply(factors, techniques[n][0]), [c for c, _ in curve], [w for _, w in curve]
        ).tolist()
        for n, curve in known.items()
    }
    return [
        compare_difference(
            Launches(values={n: worth[place] for n, worth in worths.items()}, statistic="mean"), own
        )
        for place in range(len(factors))
    ]


def _low(estimate: Estimate) -> float:
    return -np.inf if estimate.low is None else estimate.low


def _high(estimate: Estimate) -> float:
    return np.inf if estimate.high is None else estimate.high


def _crossing(factors: Sequence[float], differences: Sequence[float]) -> float | None:
    """Return where differences that do not fall cross zero."""
    if differences[0] > 0 or differences[-1] < 0:
        return None
    return float(np.interp(0.0, differences, factors))
