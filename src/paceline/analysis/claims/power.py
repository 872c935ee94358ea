"""Whether the design of a claim's run could tell: the effect that its launches resolve, beside what the claim needs.

The spread of the launches that decided gives the effect that as many launches find with 80 % power at a level of 5 %:
(t₀.₉₇₅ + t₀.₈)·s/√n, both of n − 1 degrees of freedom (the minimum detectable effect of Bloom, Evaluation Review 19(5),
1995), of the spread s of n paired launches; of a run with several looks the first quantile is that of its stricter
level. Where the interval has to lie between two bounds either end may leave them, and t₀.₉ stands for t₀.₈. Nothing of
it depends on what was found, but for the spread.

A proportion has no spread of launches: its trials give the distance from the bound that as many find
(``stats.verdicts.detectable_share``).

What the claim needs is the distance from its bound to where nothing of the technique is: no effect; the arm without the
mechanism where the claim is about a value; half of the band where it has two bounds. A bound that is no effect itself,
and a value beside which there is no such arm, need what their suite thinks worth telling, the metric's margin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.analysis.claims.verdicts import NullFound
from paceline.base.counting import number_of
from paceline.stats.estimates import Estimate
from paceline.stats.verdicts import (
    MANY_LAUNCHES,
    Kind,
    detectable_share,
    launches_to_find,
    minimum_detectable,
)

NO_EFFECT: Mapping[Kind, float] = {"ratio": 1.0, "difference": 0.0}
MANY = 99.5
"""From here on two digits are fewer than a number has before its point."""
LOGARITHMS = " log"
"""Stands in the method of an estimate whose spread is of logarithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What a design resolves, and what its claim needs: relative for ratios, in the metric's unit for differences."""

    resolves: float
    """The smallest effect that these launches decide in 80 % of runs, at 5 %."""
    needs: float
    """Distance of the claim's bound from no effect."""
    kind: Kind
    launches: int
    launches_needed: int | None
    """How many would resolve what the claim needs; None where that are more than ``MANY_LAUNCHES``."""

    @property
    def tells(self) -> bool:
        """Whether the design resolves what the claim needs."""
        return self.resolves <= self.needs

    @property
    def text(self) -> str:
        """Both, and how many launches it takes where these do not tell."""
        a_factor = "a factor of " if self.kind == "ratio" else ""
        resolved, needed = _size(self.resolves, self.kind), _size(self.needs, self.kind)
        told = f"finds {a_factor}{resolved}, the claim needs {needed}"
        if self.tells:
            return told
        enough = number_of(self.launches_needed or MANY_LAUNCHES, "launch")
        more = "" if self.launches_needed else "more than "
        return f"{told}; {more}{enough} would, these are {self.launches}"

    def remark(self, *, decided: bool) -> str | None:
        """Say of a claim that does not hold that its design could not tell; None where it could.

        Args:
            decided: Whether its interval lies beyond what was asked all the same.
        """
        if self.tells:
            return None
        if decided:
            return f"this design {self.text}; the whole interval lies beyond what was asked all the same"
        return f"this design could not tell: it {self.text}"


def _size(effect: float, kind: Kind) -> str:
    """Write an effect: of ratios as a factor, which is the same in both directions."""
    if kind == "difference":
        return f"{effect:.2g}"
    return f"{1 + effect:.0f}" if effect >= MANY else f"{1 + effect:.{2 if effect >= 1 else 3}g}"


def power_of(
    expect: Mapping[str, float], estimate: Estimate, margin: float, null: NullFound | None
) -> Power | None:
    """Return what the launches behind an estimate resolve; None without a spread, or where nothing says what is needed.

    Args:
        expect: Of the claim.
        estimate: What decided it.
        margin: Of its metric in its suite: relative for ratios, in the metric's unit for differences.
        null: What the arm without the mechanism came to.
    """
    kind = _kind(expect, estimate)
    band = len(expect) > 1 or "equal_within" in expect
    needs = _needed(expect, kind, margin, null)
    if needs is None or not needs > 0:
        return None
    if estimate.trials is not None:
        return _of_trials(expect, estimate, estimate.trials, needs)
    resolves = minimum_detectable(estimate, kind, band=band)
    if resolves is None:
        return None
    return Power(
        resolves=resolves,
        needs=needs,
        kind=kind,
        launches=estimate.num_launches,
        launches_needed=launches_to_find(estimate, needs, kind, band=band),
    )


def _of_trials(expect: Mapping[str, float], estimate: Estimate, trials: int, needs: float) -> Power | None:
    """Return the power of a proportion, by its trials; each launch is taken to have as many as these have."""
    bound, *more = expect.values()
    resolves = None if more else detectable_share(bound, trials, estimate.confidence)
    if resolves is None:
        return None
    # the effect falls with the root of the trials, which grow with the launches
    launches = math.ceil(estimate.num_launches * (resolves / needs) ** 2)
    return Power(
        resolves=resolves,
        needs=needs,
        kind="difference",
        launches=estimate.num_launches,
        launches_needed=launches if launches <= MANY_LAUNCHES else None,
    )


def on_logs(estimate: Estimate) -> bool:
    """Return whether an estimate's spread is of logarithms."""
    return LOGARITHMS in estimate.method


def _kind(expect: Mapping[str, float], estimate: Estimate) -> Kind:
    """Return the scale of an estimate's spread."""
    quantity = next(iter(expect)).partition("_")[0]
    if quantity == "value":
        return "ratio" if on_logs(estimate) else "difference"
    return "difference" if quantity == "difference" else "ratio"


def _needed(expect: Mapping[str, float], kind: Kind, margin: float, null: NullFound | None) -> float | None:
    if len(expect) > 1:
        low, high = sorted(expect.values())
        return _apart(low, high, kind, parts=2)
    ((name, bound),) = expect.items()
    if name == "equal_within":
        return bound
    if name.startswith("value"):
        return margin if null is None or null.estimate is None else _apart(null.estimate.value, bound, kind)
    distance = _apart(bound, NO_EFFECT[kind], kind)
    return margin if distance == 0 else distance


def _apart(one: float, other: float, kind: Kind, *, parts: int = 1) -> float | None:
    """Return how far two numbers are apart, or a part of it; as a ratio None where one of them is not positive."""
    if kind == "difference":
        return abs(one - other) / parts
    if min(one, other) <= 0:
        return None
    return math.expm1(abs(math.log(one / other)) / parts)
