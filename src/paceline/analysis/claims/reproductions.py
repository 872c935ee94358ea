"""What a claim's interval is worth: whether it reproduces what a paper says, and by which rule it does not.

The rules, in this order, for a claim whose interval is as expected, or in its direction:

1. It quotes its paper, is held against whom its paper is, or says why another is no easier to beat, and its interval
   has a width. Otherwise it is a conformance: a bound of ours, an opponent of ours, a closed form, a count.
2. An arm without the mechanism, in the technique's place, falls short by its whole interval, and by five times what a
   bound of ours allows. Where it does so at no point the claim says nothing, and where it does not at some, the claim
   holds partly.
3. As many launches decided it as are asked for, whatever the verdict. Otherwise it is inconclusive.
4. The interval does not lie wholly on the wrong side of no effect. Otherwise the claim holds partly.
5. Where it is about the paper's best, mean or range, the bound is the paper's own. Otherwise it holds partly.
6. Nothing that creates the effect is assumed. Otherwise it is consistent with a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paceline.analysis.claims.points import Found, Sides, measured_in
from paceline.analysis.claims.verdicts import (
    CONFORMANCE,
    SIZED,
    SLACK_SHARE,
    ClaimVerdictName,
    NullFound,
    beyond_no_effect,
    decided,
    excludes_no_effect,
    falls_short,
    has_width,
    loss_of,
    order_of,
    slack,
)
from paceline.analysis.evidence import PointKey, point_key
from paceline.analysis.points import LEADERBOARD_LAUNCHES, Point
from paceline.base.counting import number_of
from paceline.base.families.family import Family
from paceline.stats.estimates import Estimate

LESS = "the direction alone: less than was asked"
"""Of a claim whose effect was assumed: how it falls short of its bound."""


def null_found(
    claim: Mapping[str, Any], sides: Sides, found: Sequence[Found], points: Sequence[Point], family: Family
) -> NullFound | None:
    """Judge a claim with an arm that has no mechanism in the place of the side that has it.

    Args:
        claim: As suites write it.
        sides: Its sides.
        found: What was found of it; the arm is looked for in the same runs.
        points: Of the place.
        family: Theirs.

    Returns:
        None where the claim names no arm, and no effect would fulfil what it expects.
    """
    given = {side: label for side, label in (claim.get("null_arm") or {}).items() if label is not None}
    if not found:
        return None
    if not given:
        short = sides.other is not None and excludes_no_effect(claim["expect"])
        return NullFound(technique="", verdict="not reproduced") if short else None
    ((side, label),) = given.items()
    arm = _with_arm(sides, side, label)
    runs = {run.run_id for one_found in found for run in one_found.runs}
    there = [point for point in points if point.run.run_id in runs]
    expect, measured = claim["expect"], measured_in(there, arm, family)
    lost = _lost(expect, there, arm) if side == "technique" else set()
    rest = [one for one in found if one.point not in lost]
    # what is infinite is its worst
    worst: ClaimVerdictName | None = "not reproduced" if len(rest) < len(found) else None
    if not measured.found:
        return NullFound(technique=label, verdict=worst, points=len(found), as_good=len(rest))
    by_worth = sorted((f.estimate for f in measured.found), key=lambda estimate: order_of(expect, estimate))
    as_good, near = _not_short(claim, rest, {f.point: f.estimate for f in measured.found})
    return NullFound(
        technique=label,
        estimate=by_worth[-1],
        verdict=worst or decided(expect, by_worth[0]),
        points=len(found),
        as_good=as_good,
        near=near,
    )


def _not_short(
    claim: Mapping[str, Any], found: Sequence[Found], arm: Mapping[PointKey | None, Estimate]
) -> tuple[int, int]:
    """Return at how many points an arm does as well as the technique, and at how many others it loses little."""
    expect, as_good, near = claim["expect"], 0, 0
    allowed = 0.0 if claim.get("whose") == "paper" else slack(expect)
    for one in found:
        there = arm.get(one.point)
        if there is None or not falls_short(decided(expect, there), decided(expect, one.estimate)):
            as_good += 1
        elif allowed > 0 and loss_of(expect, there) < SLACK_SHARE * allowed:
            near += 1
    return as_good, near


def _lost(expect: Mapping[str, float], points: Sequence[Point], arm: Sides) -> set[PointKey]:
    """Return the points at which an arm never came to what is counted until then, where at most so much is asked."""
    if not any(kind.endswith("at_most") for kind in expect):
        return set()
    return {point_key(p) for p in points if (arm.technique, arm.metric) in p.never}


def _with_arm(sides: Sides, side: str, label: str) -> Sides:
    """Return a claim's sides with an arm in the place of one; both, where they are one technique at two settings."""
    if sides.other == sides.technique:
        return replace(sides, technique=label, other=label)
    return replace(sides, technique=label) if side == "technique" else replace(sides, other=label)


def is_reproduction(claim: Mapping[str, Any]) -> bool:
    """Return whether a claim is about a paper's own words: it quotes them, and no opponent of ours stands in theirs."""
    return claim.get("paper") is not None and bool(claim.get("said")) and other_opponent(claim) is None


def other_opponent(claim: Mapping[str, Any]) -> str | None:
    """Say against whom a paper's claim would be, where it is held against another arm and does not say why.

    None where it is held against its paper's own opponent, gives a reason for another, compares nothing, or is of a
    record from before claims named their opponents.
    """
    against, sides = (claim.get("said") or {}).get("against"), Sides.of(claim)
    if not against or sides.other is None or against.get("because"):
        return None
    return None if against.get("arm") in (sides.technique, sides.other) else str(against["paper"])


def judged(
    claim: Mapping[str, Any],
    verdict: ClaimVerdictName,
    estimate: Estimate,
    null: NullFound | None,
    *,
    launches: int,
) -> tuple[ClaimVerdictName, str | None]:
    """Return what the verdict of an interval is worth, and the rule that made it less.

    Args:
        claim: As suites write it.
        verdict: Of the interval that decided.
        estimate: That interval.
        null: What the arm without the mechanism came to.
        launches: Of the point with the fewest.
    """
    if not is_reproduction(claim):
        if (instead := other_opponent(claim)) is None:
            return CONFORMANCE.get(verdict, verdict), None
        why = f"its paper's opponent is another, and not here: {instead}"
        if null is not None and verdict in ("reproduced", "partly") and not null.tells(verdict):
            return "says nothing", f"{why}; {_null_text(null)}"
        return CONFORMANCE.get(verdict, verdict), why
    if not has_width(estimate):
        return CONFORMANCE.get(verdict, verdict), "a count without an interval: it conforms or does not"
    few = launches < LEADERBOARD_LAUNCHES
    if verdict not in ("reproduced", "partly"):
        return ("inconclusive" if few and verdict == "not reproduced" else verdict), None
    if null is None:
        return "says nothing", "no arm without the mechanism is held against it (null_arm:)"
    if not null.tells(verdict):
        return "says nothing", _null_text(null)
    if few:
        return "inconclusive", None
    kept = null.as_good + null.near
    expect = claim["expect"]
    if verdict == "reproduced" and kept:
        verdict, why = "partly", f"at {kept} of {number_of(null.points, 'point')} {_null_text(null)}"
    elif verdict == "reproduced" and beyond_no_effect(expect, estimate):
        verdict, why = "partly", "the whole interval lies on the other side of no effect, within the slack"
    elif verdict == "reproduced" and claim["scope"] in SIZED and claim.get("whose") != "paper":
        verdict, why = "partly", "the direction: the bound is ours, and looser than the paper's number"
    else:
        why = ""
    if claim.get("assumed"):
        if verdict == "partly" and not why:
            why = LESS
        assumed = "; ".join(f"{name}: {text}" for name, text in claim["assumed"].items())
        return "consistent with a model", "; ".join(filter(None, (f"assumed: {assumed}", why)))
    return verdict, why or None


def _null_text(null: NullFound) -> str:
    if null.verdict is None:
        return f"{null.technique}, which lacks the mechanism, is not in the runs that decided"
    if null.near and not null.as_good:
        return (
            f"{null.technique}, which lacks the mechanism, loses less than {SLACK_SHARE} times what is allowed: "
            "the bound is most of all that there is to lose"
        )
    if null.verdict == "inconclusive":
        return f"{null.technique}, which lacks the mechanism, may do as well: its interval holds the bound"
    return f"{null.technique}, which lacks the mechanism, does as well"
