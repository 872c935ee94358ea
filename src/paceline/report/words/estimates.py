"""What a reader sees of an estimate: the one place that decides between an interval, a range, and neither.

Terminals, pages and Markdown take their texts from here, so a number reads the same everywhere. Records, JSON and data
files keep estimates as they are. docs/reading-results.md says the same to readers.

| launches | shown |
|---|---|
| 1 | the value, and the verdict ``one launch`` |
| 2 or 3 | the range of the launches, named so; shares of counted answers keep Wilson's interval |
| 4 or more | the 95 % interval inside the metric's range, or ``undecided`` where its ends say next to nothing |

Verdicts are those of ``stats.verdicts`` at any number of launches. Nothing here decides anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from paceline.base.counting import number_of
from paceline.base.families.family import ANY, Bounds, bounds_of_unit
from paceline.base.units import format_quantity
from paceline.stats.estimates import Estimate
from paceline.stats.verdicts import MANY_LAUNCHES, Kind, Verdict

ABSENT = "–"
FEW_LAUNCHES = 3
"""Up to so many launches their range is shown: Student's t knows too little of their spread for an interval to read."""
MOST_FACTOR = 10.0
"""Ends of an interval that differ by more than this factor do not tell how large a quantity is."""
LOPSIDED = 0.25
"""Intervals wider than this on either side, relative to the value, are shown by both ends."""
RANGE_MARK = "(range of "
"""Begins what names a range."""
FEW_NOTE = "ranges are of launches; a verdict rests on their 95 % interval, which is wider"
"""Stands under tables with ranges, where a range without 1 can be inconclusive."""
ONE_LAUNCH = "one launch"
"""Verdict of a comparison that rests on one launch; in data it is ``inconclusive``."""
MACHINE_BUSY = "machine busy"
"""Verdict of a comparison that others' load leaves without one; in data it is ``inconclusive``."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What is shown beside a value."""

    kind: Literal["none", "range", "interval", "undecided"]
    low: float = math.nan
    high: float = math.nan
    clipped: bool = False
    """Whether an end was moved to the end of the metric's range."""

    def drawn(self) -> tuple[float | None, float | None]:
        """Return the ends that a chart draws: none where none are written."""
        return (self.low, self.high) if self.kind in ("range", "interval") else (None, None)


class Judged(Protocol):
    """A comparison with its verdict: of techniques in one run, or of two runs."""

    @property
    def effect(self) -> Estimate:
        """What was found."""

    @property
    def kind(self) -> Kind:
        """Whether that is a ratio or a difference."""

    @property
    def unit(self) -> str:
        """Unit of both sides."""

    @property
    def verdict(self) -> Verdict:
        """What follows."""


def ends_of_value(estimate: Estimate, bounds: Bounds = ANY, *, positive: bool = False) -> Ends:
    """Return what is shown beside a metric's value.

    Args:
        estimate: The value over launches.
        bounds: Least and largest value of the metric. A value outside them shows that they are wrong: no end is moved.
        positive: Whether zero is no value either, as for times; an interval down to zero is then undecided.
    """
    found = _ends(estimate, bounds)
    if found.kind != "interval" or estimate.method == "Wilson":
        return found
    says_nothing = (found.low, found.high) == bounds
    if says_nothing or _too_wide(found.low, found.high) or (positive and found.low <= 0):
        return Ends("undecided")
    return found


def band(estimate: Estimate, bounds: Bounds = ANY) -> tuple[float, float | None, float | None]:
    """Return the value and the ends that a chart draws of a value that is positive, none where they reach zero."""
    constant = estimate.low is not None and estimate.low == estimate.high
    low, high = ends_of_value(estimate, bounds).drawn()
    if constant:
        low, high = estimate.low, estimate.high
    return (estimate.value, None, None) if low is None or low <= 0 else (estimate.value, low, high)


def ends_of_effect(estimate: Estimate, kind: Kind, bounds: Bounds = ANY) -> Ends:
    """Return what is shown beside a ratio, or a difference of values that lie between bounds.

    A factor between ends says something of ratios alone: that of a difference is large wherever an end is near zero.
    """
    widest = bounds[1] - bounds[0] if kind == "difference" else math.inf
    found = _ends(estimate, (0.0, math.inf) if kind == "ratio" else (-widest, widest))
    if found.kind != "interval":
        return found
    if kind == "ratio":
        says_nothing = found.low <= 0 or _too_wide(found.low, found.high)
    else:
        says_nothing = (found.low, found.high) == (-widest, widest)
    return Ends("undecided") if says_nothing else found


def _ends(estimate: Estimate, bounds: Bounds) -> Ends:
    low, high = estimate.low, estimate.high
    counted = estimate.method == "Wilson" and estimate.num_launches > 1
    if low is None or high is None or low == high or estimate.num_launches == 1:
        return Ends("none")
    if estimate.num_launches <= FEW_LAUNCHES and not counted:
        return Ends("none") if estimate.extremes is None else Ends("range", *estimate.extremes)
    if not bounds[0] <= estimate.value <= bounds[1]:
        bounds = ANY
    inside = max(low, bounds[0]), min(high, bounds[1])
    return Ends("interval", *inside, clipped=inside != (low, high))


def _too_wide(low: float, high: float) -> bool:
    """Tell whether ends on one side of zero differ by too large a factor; what no float can hold does."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return True
    near, far = sorted((abs(low), abs(high)))
    return low * high > 0 and far > MOST_FACTOR * near


def format_estimate(estimate: Estimate, unit: str, bounds: Bounds | None = None) -> str:
    """Write a value with what its launches tell of it.

    Such as ``1.23 ms ± 4 %``, ``0.91 [0.84, 1]``, ``1.2–1.4 ms (range of 3)`` or ``387 ms, undecided (5 launches)``.

    Args:
        estimate: The value over launches.
        unit: A base unit.
        bounds: Least and largest value of the metric; None for what the unit alone tells.
    """
    if estimate.missed:
        text = "" if math.isinf(estimate.value) else f"{format_quantity(estimate.value, unit)}, "
        if estimate.low is not None and estimate.high is not None:
            low, high = (format_quantity(end, unit) for end in (estimate.low, estimate.high))
            text = f"{text.removesuffix(', ')} [{low}, {high}], "
        return f"{text}missed in {estimate.missed} of {estimate.num_launches}"
    if not math.isfinite(estimate.value):
        return ABSENT
    text = format_quantity(estimate.value, unit)
    bounds = bounds_of_unit(unit) if bounds is None else bounds
    ends = ends_of_value(estimate, bounds, positive=unit == "s" and bounds[0] == 0)
    if ends.kind == "none":
        return text
    if ends.kind == "undecided":
        return f"{text}, {_undecided(estimate)}"
    low, high = format_quantity(ends.low, unit), format_quantity(ends.high, unit)
    if ends.kind == "range":
        return f"{_span(low, high)} {RANGE_MARK}{estimate.num_launches})"
    half = (ends.high - ends.low) / 2
    if ends.clipped or estimate.method == "Wilson" or half > LOPSIDED * estimate.value > 0:
        return f"{text} [{low}, {high}]"
    return (
        f"{text} ± {_percent(half / estimate.value) if estimate.value > 0 else format_quantity(half, unit)}"
    )


def format_effect(
    estimate: Estimate, kind: str, bounds: Bounds | None = None, *, verdict: str = "inconclusive"
) -> str:
    """Write a ratio as ``0.83 × [0.80, 0.86]`` or ``0.8–0.9 × (range of 3)``, or a difference in the same way.

    Args:
        estimate: A ratio or a difference.
        kind: Which of them: ``ratio`` or ``difference``.
        bounds: Least and largest value of the metric of which it is a difference.
        verdict: Name of the verdict. Where it is faster or slower and the ends are far apart, the direction is known,
            and the text says that the size is not.
    """
    if not math.isfinite(estimate.value):
        return ABSENT
    mark = " ×" if kind == "ratio" else ""
    text = f"{estimate.value:.3g}{mark}"
    if estimate.missed:
        if estimate.low is not None and estimate.high is not None:
            text = f"{text} [{estimate.low:.3g}, {estimate.high:.3g}]"
        return f"{text} ({estimate.missed} missed)"
    ends = ends_of_effect(estimate, "ratio" if kind == "ratio" else "difference", bounds or ANY)
    if ends.kind == "none":
        return text
    if ends.kind == "undecided":
        size = "size " if verdict in ("faster", "slower") else ""
        return f"{text}, {size}{_undecided(estimate)}"
    low, high = f"{ends.low:.3g}", f"{ends.high:.3g}"
    if ends.kind == "range":
        return f"{_span(low, high)}{mark} {RANGE_MARK}{estimate.num_launches})"
    return f"{text} [{low}, {high}]"


def _undecided(estimate: Estimate) -> str:
    return f"undecided ({number_of(estimate.num_launches, 'launch')})"


def _span(low: str, high: str) -> str:
    """Write a range, with its unit once where both ends have the same; one number where its digits are the same."""
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    if unit and high.endswith(f" {unit}"):
        low = number
    return f"{low} to {high}" if "-" in low + high else f"{low}–{high}"


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %") if share >= 0.1 else f"{share:.1%}".replace("%", " %")


def format_verdict(name: str, unit: str) -> str:
    """Write a verdict: only times are faster or slower, other quantities better or worse."""
    if unit == "s":
        return name
    return {"faster": "better", "slower": "worse"}.get(name, name)


def verdict_text(comparison: Judged, *, wide: bool = False) -> str:
    """Write the verdict of a comparison.

    Args:
        comparison: Of techniques or of runs.
        wide: Whether to say how many launches would make the interval as narrow as the margin; never by few launches,
            whose spread is little known.
    """
    verdict, effect = comparison.verdict, comparison.effect
    if verdict.machine_busy:
        return MACHINE_BUSY
    if verdict.name == "inconclusive" and effect.num_launches == 1:
        return ONE_LAUNCH
    text = format_verdict(verdict.name, comparison.unit)
    needed = verdict.launches_needed
    if not wide or needed is None or effect.num_launches <= FEW_LAUNCHES:
        return text
    return f"{text} ({'≥' if needed >= MANY_LAUNCHES else '≈'} {number_of(needed, 'launch')})"
