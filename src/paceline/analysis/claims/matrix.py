"""At how many points of its suite a claim holds, those that it does not select among them.

A claim may select points: those that its paper speaks of, or at which there is something to find. What was measured at
the others is told beside it, judged by the same expectation, so that nobody has to ask where else it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.analysis.claims.points import Found, Premised, Sides, numbers_in, selected
from paceline.analysis.claims.verdicts import ClaimVerdictName, decided
from paceline.analysis.points import LEADERBOARD_LAUNCHES, Point
from paceline.base.families.family import Family
from paceline.stats.estimates import Estimate

HOLDS: ClaimVerdictName = "reproduced"
"""What an interval has to come to at a point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPoint:
    """A point of a suite at which both sides of a claim have a number."""

    params: Mapping[str, Any]
    estimate: Estimate
    verdict: ClaimVerdictName
    """Of this point's interval alone, held against the claim's expectation."""
    selected: bool
    """Whether the claim is about it."""
    premises_met: bool
    """Whether all of the claim's premises are met there."""

    @property
    def holds(self) -> bool:
        """Whether the whole interval lies where the claim expects it."""
        return self.verdict == HOLDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """What a claim comes to at each point of its suite, where it was decided."""

    points: tuple[MatrixPoint, ...]

    @property
    def num_holding(self) -> int:
        """Points at which the claim holds."""
        return sum(point.holds for point in self.points)

    @property
    def num_selected(self) -> int:
        """Points that the claim is about."""
        return sum(point.selected for point in self.points)

    @property
    def num_silent(self) -> int:
        """Points at which a premise is not met, so that holding there says nothing."""
        return sum(not point.premises_met for point in self.points)


def matrix_of(
    expect: Mapping[str, float],
    sides: Sides,
    found: Sequence[Found],
    points: Sequence[Point],
    family: Family,
    check: Callable[[Point], tuple[Premised, ...]],
) -> Matrix:
    """Judge a claim at every point of its suite with as many launches as those that decide it.

    Args:
        expect: Of the claim.
        sides: Of the claim.
        found: What decided it.
        points: Of the place where that was found.
        family: Theirs.
        check: Returns what a point's run says of the claim's premises.
    """
    _, pairs = numbers_in(points, replace(sides, where={}), family)
    enough = min(LEADERBOARD_LAUNCHES, min((f.launches for f in found), default=0))
    return Matrix(
        points=tuple(
            MatrixPoint(
                params=there.params,
                estimate=there.estimate,
                verdict=decided(expect, there.estimate),
                selected=selected(point, sides.where, family),
                premises_met=all(premise.met for premise in check(point)),
            )
            for point, there in pairs
            if there.launches >= enough and not _is_its_other_side(point, sides, family)
        )
    )


def _is_its_other_side(point: Point, sides: Sides, family: Family) -> bool:
    """Tell whether a point would be compared with itself: the other side is the same technique, there."""
    return sides.other == sides.technique and selected(point, sides.other_where, family)
