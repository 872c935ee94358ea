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
NO_EFFECT_OF: Mapping[str, float] = {"ratio_at_most": 1.0, "ratio_at_least": 1.0, "difference_at_most": 0.0}
"""What an expectation is compared with where two sides are equal, by its kind."""
NO_WIDTH = 1e-12
"""Relative width of an interval up to which it has none: its samples are one count, through logarithms."""
UNTESTABLE: ClaimVerdictName = "not testable here"
"""The verdict where a premise is not met that no machine like this one can meet: whatever was found says nothing."""
NOT_RUN: ClaimVerdictName = "not run"
"""The verdict where nobody measured, or not in a setting that meets the premises and that this machine could run."""


SLACK_SHARE = 5
"""An arm without the mechanism loses at least so many times what a claim allows, or the allowance is most of all that
there is to lose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NullFound:
    """What an arm without the mechanism came to in the technique's place, in the same runs and at the same points."""

    technique: str
    """Its label; empty where no effect stands in its place, two equal sides."""
    estimate: Estimate | None = None
    """At the point where it comes closest to what is expected; None where the runs do not hold it, or of no effect."""
    verdict: ClaimVerdictName | None = None
    """Of its worst interval, held against the claim's expectation; None where the runs do not hold it."""
    points: int = 1
    """At how many points the technique was judged."""
    as_good: int = 0
    """At how many of them it does as well as the technique, may do so, or is not in the runs."""
    near: int = 0
    """At how many of the others it loses less than ``SLACK_SHARE`` times what the claim allows."""

    def tells(self, verdict: ClaimVerdictName) -> bool:
        """Whether it falls short, by its whole interval, of what the technique came to, at one point at least."""
        if self.verdict is None or self.verdict == "inconclusive" or self.as_good + self.near >= self.points:
            return False
        return WORST_FIRST.index(self.verdict) < WORST_FIRST.index(verdict)


def falls_short(verdict: ClaimVerdictName, of: ClaimVerdictName) -> bool:
    """Return whether one interval is decided, and worse than another."""
    return verdict != "inconclusive" and WORST_FIRST.index(verdict) < WORST_FIRST.index(of)


def slack(expect: Mapping[str, float]) -> float:
    """Return how far an expectation reaches beyond no effect on its wrong side; 0 where it does not, and of values."""
    kind, bound = next(iter(expect.items()))
    if len(expect) > 1 or kind not in NO_EFFECT_OF:
        return 0.0
    beyond = bound - NO_EFFECT_OF[kind]
    return max(0.0, -beyond if kind.endswith("at_least") else beyond)


def loss_of(expect: Mapping[str, float], estimate: Estimate) -> float:
    """Return by how much the near end of an interval lies on the wrong side of no effect; below 0 on the right side."""
    kind = next(iter(expect))
    if estimate.low is None or estimate.high is None or kind not in NO_EFFECT_OF:
        return -math.inf
    if kind.endswith("at_least"):
        return NO_EFFECT_OF[kind] - estimate.high
    return estimate.low - NO_EFFECT_OF[kind]


def excludes_no_effect(expect: Mapping[str, float]) -> bool:
    """Return whether a whole interval on the right side of an expectation cannot be that of two equal sides."""
    return any(
        bound <= NO_EFFECT_OF[kind] if kind.endswith("at_most") else bound >= NO_EFFECT_OF[kind]
        for kind, bound in expect.items()
        if kind in NO_EFFECT_OF
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
