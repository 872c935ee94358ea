"""An interval held against what was expected of it: verdicts of claims, and what is worst among several.

A verdict needs the whole interval on one side of the expectation. A claim that quotes its paper is a reproduction: it
has to beat an arm without the mechanism, to lie on the right side of no effect, and to reach the paper's own number
where it is about one. What quotes nobody, and what has no interval, is a conformance, which makes no paper's verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paceline.stats.estimates import Estimate

ClaimVerdictName = Literal[
    "reproduced",
    "partly",
    "not reproduced",
    "not testable here",
    "inconclusive",
    "not run",
    "says nothing",
    "consistent with a model",
    "conforms",
    "conforms in part",
    "does not conform",
]
WORST_FIRST: tuple[ClaimVerdictName, ...] = ("not reproduced", "inconclusive", "partly", "reproduced")
"""Verdicts that an interval can have; of several the first is what counts."""
CONFORMANCE: Mapping[ClaimVerdictName, ClaimVerdictName] = {
    "reproduced": "conforms",
    "partly": "conforms in part",
    "not reproduced": "does not conform",
}
"""What the verdict of an interval is called where a claim reproduces nothing."""
REFUTED: tuple[ClaimVerdictName, ...] = ("not reproduced", "does not conform")
SIZED = ("best", "mean", "range")
"""Scopes of a paper's number: a looser bound of ours tests its direction alone."""
NO_WIDTH = 1e-12
"""Relative width of an interval up to which it has none: its samples are one count, through logarithms."""
UNTESTABLE: ClaimVerdictName = "not testable here"
"""The verdict where a premise is not met: whatever was found says nothing about the claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NullFound:
    """What an arm without the mechanism came to in the technique's place, in the same runs and at the same points."""

    technique: str
    """Its label; empty where no effect stands in its place, two equal sides."""
    estimate: Estimate | None = None
    """None where the runs do not hold it, or where it is no effect."""
    verdict: ClaimVerdictName | None = None
    """Of its interval, held against the claim's expectation; None where the runs do not hold it."""

    def tells(self, verdict: ClaimVerdictName) -> bool:
        """Whether it falls short, by its whole interval, of what the technique came to."""
        if self.verdict is None or self.verdict == "inconclusive":
            return False
        return WORST_FIRST.index(self.verdict) < WORST_FIRST.index(verdict)


def excludes_no_effect(expect: Mapping[str, float]) -> bool:
    """Return whether a whole interval on the right side of an expectation cannot be that of two equal sides."""
    equal = {"ratio_at_most": 1.0, "ratio_at_least": 1.0, "difference_at_most": 0.0}
    return any(
        bound <= equal[kind] if kind.endswith("at_most") else bound >= equal[kind]
        for kind, bound in expect.items()
        if kind in equal
    )


def beyond_no_effect(expect: Mapping[str, float], estimate: Estimate) -> bool:
    """Return whether a whole interval lies on the wrong side of no effect, within the slack of an expectation."""
    if estimate.low is None or estimate.high is None or len(expect) > 1:
        return False
    kind = next(iter(expect))
    if kind == "ratio_at_least":
        return estimate.high < 1
    return estimate.low > {"ratio_at_most": 1.0, "difference_at_most": 0.0}.get(kind, math.inf)


def has_width(estimate: Estimate) -> bool:
    """Return whether an estimate has an interval with a width: a count or a closed form has none."""
    if estimate.low is None or estimate.high is None:
        return True
    return estimate.high - estimate.low > NO_WIDTH * max(abs(estimate.low), abs(estimate.high))


def expectation_text(expect: Mapping[str, float]) -> str:
    """Say an expectation in words."""
    if len(expect) == 2:
        quantity = next(iter(expect)).partition("_")[0]
        return f"{expect[f'{quantity}_at_least']:g} ≤ {quantity} ≤ {expect[f'{quantity}_at_most']:g}"
    kind, bound = next(iter(expect.items()))
    words = {
        "ratio_at_most": f"ratio ≤ {bound:g}",
        "ratio_at_least": f"ratio ≥ {bound:g}",
        "equal_within": "equal" if bound == 0 else f"equal within {bound:g}",
        "difference_at_most": f"difference ≤ {bound:g}",
        "value_at_most": f"value ≤ {bound:g}",
        "value_at_least": f"value ≥ {bound:g}",
    }
    return words[kind]


def order_of(expect: Mapping[str, float], estimate: Estimate) -> tuple[int, float]:
    """Return what puts the worst first: the verdict, then the room on the right side of the expectation."""
    return WORST_FIRST.index(decided(expect, estimate)), _room(expect, estimate)


def _room(expect: Mapping[str, float], estimate: Estimate) -> float:
    """Return how far an estimate stays on the right side of an expectation; the least decides among equal verdicts."""
    return min(_room_beside(kind, bound, estimate) for kind, bound in expect.items())


def _room_beside(kind: str, bound: float, estimate: Estimate) -> float:
    if estimate.low is None or estimate.high is None:
        return -math.inf
    if kind == "equal_within":
        return -max(abs(estimate.low - 1), abs(estimate.high - 1))
    return bound - estimate.high if kind.endswith("at_most") else estimate.low - bound


def decided(expect: Mapping[str, float], estimate: Estimate) -> ClaimVerdictName:
    """Hold an interval against an expectation, both bounds where it has two."""
    return min(
        (_decide_bound(kind, bound, estimate) for kind, bound in expect.items()), key=WORST_FIRST.index
    )


def _decide_bound(kind: str, bound: float, estimate: Estimate) -> ClaimVerdictName:
    low, high = estimate.low, estimate.high
    if low is None or high is None or not math.isfinite(estimate.value):
        return "inconclusive"
    if kind == "equal_within":
        if 1 - bound <= low and high <= 1 + bound:
            return "reproduced"
        return "not reproduced" if high < 1 - bound or low > 1 + bound else "inconclusive"
    at_most = kind.endswith("at_most")
    holds = high <= bound if at_most else low >= bound
    if holds:
        return "reproduced"
    fails = low > bound if at_most else high < bound
    if not fails:
        return "inconclusive"
    if kind.startswith("ratio"):
        right_direction = high < 1 if bound <= 1 and at_most else low > 1 and not at_most
        return "partly" if right_direction else "not reproduced"
    return "not reproduced"
