"""Claims in words, for tables and pages.

A verdict can be checked by eye: numbers have as many digits as it takes to lie, as written, on the side of what was
asked on which they lie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from paceline.analysis.claims.results import ClaimResult
from paceline.base.counting import number_of
from paceline.base.families.family import load_family
from paceline.report.tables.results import format_param
from paceline.report.words.bounds import with_ends
from paceline.report.words.estimates import ABSENT, ends_of_effect, format_effect, format_estimate
from paceline.report.words.names import metric_label
from paceline.stats.estimates import Estimate

OWN_BOUND = "(own bound)"
"""Stands where a paper's slug would, for claims that no paper makes."""
STATEMENT, PAPERS_NUMBER = "what it says, in our words", "the paper's number"
RUN_CHARS = 13
"""Of a run's id: the instant at which it began, to the millisecond."""


def sides(claim: ClaimResult) -> str:
    """Say whose number a claim is about, against whose, and at which points."""
    both = f"{claim.technique} / {claim.versus}" if claim.versus else claim.technique
    return f"{both} where {claim.where}" if claim.where else both


def found_text(claim: ClaimResult) -> str:
    """Write the estimate that decided a claim, with the ends of its interval; of equality how far off it is.

    The interval stands there by few launches, too: the verdict rests on it, and a reader can check it.
    """
    found = claim.worst
    if found is None:
        return ABSENT
    ratio = bool(claim.versus) and "ratio" in claim.expectation
    if found.missed or not math.isfinite(found.value):
        return format_effect(found, "ratio" if ratio else "") if claim.versus else format_estimate(found, "")
    found = _inside(found, claim, ratio=ratio)
    bounds = tuple(claim.expect.values())
    if claim.verdict == "inconclusive" and _says_nothing(found, ratio=ratio):
        return (
            f"{found.value:.3g}{' ×' if ratio else ''}, undecided ({number_of(found.num_launches, 'launch')})"
        )
    if "equal_within" in claim.expect:
        name = "ratio" if claim.versus else "value"
        return f"{name} − 1 = {with_ends(_off_one(found), (-bounds[0], bounds[0]))}"
    return with_ends(found, bounds, " ×" if ratio else "")


def _inside(found: Estimate, claim: ClaimResult, *, ratio: bool) -> Estimate:
    """Return an estimate whose ends lie where the metric, or the difference of two of its values, can lie."""
    low, high = load_family(claim.suite.partition("/")[0]).metric(claim.metric).range_of_values
    if ratio or found.low is None or found.high is None or not low <= found.value <= high:
        return found
    if claim.versus:
        low, high = low - high, high - low
    return replace(found, low=max(found.low, low), high=min(found.high, high))


def _says_nothing(found: Estimate, *, ratio: bool) -> bool:
    return ratio and ends_of_effect(found, "ratio").kind == "undecided"


def _off_one(found: Estimate) -> Estimate:
    low, high = (None if end is None else end - 1 for end in (found.low, found.high))
    return replace(found, value=found.value - 1, low=low, high=high)


def costs_text(claim: ClaimResult) -> str:
    """Say in which metrics of its suite a claim's side is worse, such as ``at the cost of: latency 1.44 ×``.

    Where the claim speaks for its other side that is named, and where it is not so at all points it says at how many.
    """
    told = []
    for cost in claim.costs:
        unit = cost.unit if cost.kind == "difference" and cost.unit not in ("ratio", "1") else ""
        points = number_of(cost.of_points, "point")
        where = f" at {cost.num_points} of {points}" if cost.num_points < cost.of_points else ""
        effect = format_effect(cost.effect, cost.kind, verdict="slower")
        told.append(f"{metric_label(cost.metric)} {effect}{f' {unit}' if unit else ''}{where}")
    others = dict.fromkeys(cost.payer for cost in claim.costs if cost.payer != claim.technique)
    whose = f", to {next(iter(others))}," if others else ""
    return f"at the cost{whose} of: {', '.join(told)}" if told else ""


def matrix_text(claim: ClaimResult) -> str:
    """Say at how many points of its suite a claim holds, how many it is about, and why not all."""
    matrix = claim.matrix
    if matrix is None or not matrix.points:
        return ""
    points = number_of(len(matrix.points), "point")
    told = [f"holds at {matrix.num_holding} of {points} of the suite"]
    if matrix.num_silent:
        told.append(f"a premise is not met at {matrix.num_silent}")
    if matrix.num_selected < len(matrix.points):
        told.append(f"selected: {matrix.num_selected}")
    reason = points_reason_text(claim)
    return "; ".join(told) + (f" ({reason})" if reason else "")


POINTS_REASONS: Mapping[str, str] = {
    "paper": "the paper's",
    "premise": "needs",
    "expectation": "what is asked follows from them",
}


def points_reason_text(claim: ClaimResult) -> str:
    """Say why a claim is about the points that it selects; nothing where it selects none."""
    for kind, given in claim.points_reason.items():
        return f"{POINTS_REASONS[kind]}: {given}"
    return ""


def found_at_a_cost(claim: ClaimResult, scale: str = "") -> str:
    """Write what was found of a claim, with its scale, and behind it what the technique is worse in.

    Args:
        claim: The claim.
        scale: Of the measurement, in words.
    """
    found = f"{found_text(claim)} ({scale})" if scale else found_text(claim)
    return "; ".join(filter(None, (found, costs_text(claim))))


def decided_by(claim: ClaimResult) -> str:
    """Name the run that decided a claim, and of several points the one."""
    if claim.run_id is None:
        return ""
    text = f"run {claim.run_id[:RUN_CHARS]}"
    worst = next((params for params, estimate in claim.points if estimate is claim.worst), {})
    varying = [k for k, v in worst.items() if any(p.get(k) != v for p, _ in claim.points)]
    at = ", ".join(f"{k} = {format_param(k, worst[k])}" for k in varying)
    return f"{text} at {at}" if at else text
