"""Claims: what papers say, held against what was measured.

A verdict needs the whole interval on one side of the expectation, and every premise of the claim met in the same run.
Everything else says what it is: partly (the direction holds, the size does not), not reproduced, not testable here
(which premise is not met), inconclusive, or not run with what it would need, be it a setting that meets the premises.
``reproductions`` says what a verdict is worth, ``headlines`` what follows for the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import ValidationError

from paceline.analysis.claims.costs import Cost, costs_of
from paceline.analysis.claims.matrix import Matrix, matrix_of
from paceline.analysis.claims.points import Found, Measured, Premised, Sides, measured_in, places_of
from paceline.analysis.claims.power import Power, on_logs, power_of
from paceline.analysis.claims.premises import Checker
from paceline.analysis.claims.reproductions import is_reproduction, judged, null_found
from paceline.analysis.claims.verdicts import (
    NOT_RUN,
    REFUTED,
    UNTESTABLE,
    ClaimVerdictName,
    NullFound,
    decided,
    expectation_text,
    order_of,
)
from paceline.analysis.evidence import OFF_BOARD_REASONS, PointKey
from paceline.analysis.points import LEADERBOARD_LAUNCHES, Point, compared, grade_of, points_of
from paceline.base.counting import number_of
from paceline.base.families.family import Family, family_names, load_family
from paceline.records.store.folder import RunRecord
from paceline.spec.ledger.premises import Premise, SettledBy
from paceline.spec.suites.grammar import Claim
from paceline.stats.estimates import Estimate

LOCAL_RANKS = 4
"""Ranks up to which the shipped profile of this host's loopback goes."""
Whose = Literal["paper", "ours", "suite"]
"""Whose number a claim expects: the paper's own, our testable form of its statement, or a bound of the suite's own."""
UNMET = "premise not met: "
"""How the reason begins for which a claim was not testable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimResult:
    """One claim of one suite, measured or not."""

    paper: str | None
    """Slug in the ledger; None for a bound of the suite's own."""
    suite: str
    claim_id: str
    quote: str
    scope: str
    expectation: str
    metric: str
    technique: str
    versus: str | None
    verdict: ClaimVerdictName
    where: str = ""
    """What selects its points, in words; empty when it is about all of them."""
    expect: Mapping[str, float] = field(default_factory=dict)
    """The expectation as suites write it."""
    reason: str | None = None
    worst: Estimate | None = None
    """The estimate that decided, over all points that the claim selects."""
    point: PointKey | None = None
    """Where that was found; None of several points together."""
    points: tuple[tuple[Mapping[str, Any], Estimate], ...] = ()
    run_id: str | None = None
    host_class: str | None = None
    grade: str | None = None
    """Evidence grade of what decided."""
    description: str = ""
    whose: Whose = "ours"
    said: Mapping[str, str] = field(default_factory=dict)
    """The paper's ``number`` in its own unit, its ``place`` and its ``scale``; empty where the suite quotes none."""
    against: Mapping[str, str] = field(default_factory=dict)
    """``paper``: whom the paper beats; ``arm``: which arm that is; ``because``: why another stands in its place."""
    premises: tuple[Premised, ...] = ()
    """At the point that decided."""
    settled_by: tuple[SettledBy, ...] = ()
    """What would lead to a verdict, or to another than not testable."""
    reproduces: bool = False
    """Whether it quotes its paper; otherwise it is a conformance, which makes no verdict of the paper."""
    null: NullFound | None = None
    """What the arm without the mechanism came to; None where there is none, or nothing was measured."""
    assumed: Mapping[str, str] = field(default_factory=dict)
    """What creates the effect and was assumed, with what it stands for."""
    costs: tuple[Cost, ...] = ()
    """Other metrics of the suite in which the side that it speaks for is worse than the other, at the same points."""
    matrix: Matrix | None = None
    """What it comes to at all points of its suite, where it was decided; None where nothing was measured."""
    power: Power | None = None
    """Whether the launches that decided could tell; None where they have no spread, or nothing says what is needed."""
    points_reason: Mapping[str, str] = field(default_factory=dict)
    """Why it is about the points that it selects; empty where it selects none."""

    @property
    def premise(self) -> Literal["met", "not met", "none"]:
        """Whether its premises are met where it was measured; none where it states none or nobody measured it."""
        if not self.premises:
            return "none"
        return "met" if all(p.met for p in self.premises) else "not met"


def evaluate(
    records: Iterable[RunRecord],
    suites: Sequence[Mapping[str, Any]],
    points: Callable[[RunRecord], Sequence[Point]] = points_of,
) -> list[ClaimResult]:
    """Evaluate every claim of some suites where it was last measured with enough launches, else where it was last.

    Args:
        records: Runs, in any order.
        suites: Facts of suites (``suite``, ``family``, ``claims``), such as ``provenance.suite_facts`` gives.
        points: Gives the points of a run.
    """
    places = places_of(records, suites, points)
    return [
        _evaluate_one(claim, facts["suite"], load_family(facts["family"]), places.get(facts["suite"], []))
        for facts in suites
        if facts.get("family")
        for claim in facts.get("claims", ())
    ]


def with_own_suites(
    shipped: Sequence[Mapping[str, Any]], records: Iterable[RunRecord]
) -> list[Mapping[str, Any]]:
    """Return facts of suites with those that only runs know: a user's own, and later versions than the shipped.

    A run tells its suites as they were when it ran, so their claims need no file.
    """
    versions = {str(s["suite"]): int(s["version"]) for s in shipped}
    facts = {str(s["suite"]): s for s in shipped}
    for record in sorted(records, key=lambda r: r.run_id):
        if record.run.reason in OFF_BOARD_REASONS or record.run.imported_from is not None:
            continue
        for suite in map(_sound, record.run.suites):
            if suite is not None and suite["version"] > versions.get(suite["suite"], 0):
                facts[suite["suite"]] = suite
    return list(facts.values())


def _sound(suite: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a run's facts of a suite with the claims that can be read; None where it is of no family known here."""
    version = suite.get("version")
    if suite.get("family") not in family_names() or not isinstance(version, int):
        return None
    claims = suite.get("claims")
    return {**suite, "suite": str(suite.get("suite")), "claims": list(filter(_readable, claims or ()))}


def _readable(claim: object) -> bool:
    try:
        found = Claim.model_validate(claim)
    except ValidationError:
        return False
    return all(isinstance(premise, Premise) for premise in found.premises)


def _evaluate_one(
    claim: Mapping[str, Any], suite: str, family: Family, places: Sequence[Sequence[Point]]
) -> ClaimResult:
    sides, said = Sides.of(claim), claim.get("said") or {}
    common: dict[str, Any] = {
        "paper": claim.get("paper"),
        "suite": suite,
        "claim_id": claim["id"],
        "quote": claim["quote"],
        "scope": claim["scope"],
        "expectation": expectation_text(claim["expect"]),
        "expect": claim["expect"],
        "metric": sides.metric,
        "technique": sides.technique,
        "versus": _versus_text(sides),
        "where": _where_text(sides.where),
        "description": claim.get("description", ""),
        "whose": "suite" if claim.get("paper") is None else claim.get("whose", "ours"),
        "said": {k: v for k, v in said.items() if k != "against"},
        "against": {k: v for k, v in (said.get("against") or {}).items() if v},
        "reproduces": is_reproduction(claim),
        "assumed": claim.get("assumed") or {},
        "points_reason": {k: v for k, v in (claim.get("points_reason") or {}).items() if v is not None},
    }
    measured, points = _deciding(places, sides, family, claim)
    if measured is None:
        needed: SettledBy = "time" if claim.get("needs") is None else "gpu"
        return ClaimResult(**common, verdict=NOT_RUN, reason=_why_not_run(claim, suite), settled_by=(needed,))
    if not measured.found:
        return ClaimResult(**common, verdict="inconclusive", reason=measured.failed, settled_by=("time",))
    everywhere = [point for place in places for point in place]
    costs = costs_of(sides, claim["expect"], measured.found, everywhere, family)
    check = _checker(claim, sides, family, points).at
    matrix = matrix_of(claim["expect"], sides, measured.found, points, family, check)
    decided_by = _result(common, claim, measured)
    return _with_power(replace(decided_by, costs=costs, matrix=matrix), points, family)


def _with_power(result: ClaimResult, points: Sequence[Point], family: Family) -> ClaimResult:
    """Tell whether the design could; where it could not and the claim does not hold, that is part of the reason."""
    if result.worst is None:
        return result
    run = next((p.run for p in points if p.run.run_id == result.run_id), None)
    metric = family.metric(result.metric)
    margin = compared(run, result.suite).get(result.metric, metric.margin) if run else metric.margin
    if metric.compared_by == "ratio" and "value" in next(iter(result.expect)) and not on_logs(result.worst):
        margin *= abs(
            next(iter(result.expect.values()))
        )  # a part of the bound, since values are not positive
    power = power_of(result.expect, result.worst, margin, result.null)
    refuted = result.verdict in REFUTED
    told = power.remark(decided=refuted) if power and (refuted or result.verdict == "inconclusive") else None
    return replace(result, power=power, reason="; ".join(filter(None, (result.reason, told))) or None)


def _result(common: Mapping[str, Any], claim: Mapping[str, Any], measured: Measured) -> ClaimResult:
    """Return what a claim came to where it was measured."""
    expect = claim["expect"]
    worst = min(measured.found, key=lambda f: order_of(expect, f.estimate))
    verdict = decided(expect, worst.estimate)
    if measured.failed is not None and verdict in ("reproduced", "partly"):
        verdict = "inconclusive"
    fewest = min(f.launches for f in measured.found)
    verdict, rule = judged(claim, verdict, worst.estimate, measured.null, launches=fewest)
    settled_by: tuple[SettledBy, ...] = ("time",) if verdict == "inconclusive" else ()
    remarks = [rule, measured.failed or _few_launches(worst)]
    if not measured.speaks:
        worst = max(measured.found, key=lambda f: sum(p.met for p in f.premises))
        unmet = [p for p in worst.premises if not p.met]
        # what a longer run or another workload would meet here is left undone, and not out of reach
        verdict, remarks[0] = NOT_RUN if all(p.within_reach for p in unmet) else UNTESTABLE, None
        settled_by = tuple(dict.fromkeys(p.settled_by for p in unmet))
        remarks.insert(0, "; ".join(f"{UNMET}{p.says}" for p in unmet))
    if measured.silent:
        unmet_there = dict.fromkeys(p.says for premises in measured.silent for p in premises)
        remarks.append(
            f"points left out where a premise is not met: {len(measured.silent)} ({'; '.join(unmet_there)})"
        )
    if measured.left_out:
        remarks.append(f"points left out for fewer launches: {measured.left_out}")
    return ClaimResult(
        **common,
        verdict=verdict,
        reason="; ".join(filter(None, remarks)) or None,
        worst=worst.estimate,
        point=worst.point,
        points=tuple((f.params, f.estimate) for f in measured.found),
        run_id=worst.runs[0].run_id,
        host_class=worst.runs[0].host_class,
        grade=max(grade_of(run, f.launches) for f in measured.found for run in f.runs),
        premises=worst.premises,
        settled_by=settled_by,
        null=measured.null,
    )


def _deciding(
    places: Sequence[Sequence[Point]], sides: Sides, family: Family, claim: Mapping[str, Any]
) -> tuple[Measured | None, Sequence[Point]]:
    """Return what decides, and the points of its place; None where nothing was measured.

    It is the newest place with enough launches and all premises met, or where it failed. Where there is no such place,
    it is the newest at which premises are met, else the newest.
    """
    measured_: list[tuple[Measured, Sequence[Point]]] = []
    for points in places:
        if claim.get("needs") not in (None, points[0].run.runner.get("device")):
            continue
        measured = measured_in(points, sides, family, _checker(claim, sides, family, points).at)
        if not measured.found and measured.failed is None:
            continue
        measured = replace(measured, null=null_found(claim, sides, measured.found, points, family))
        if measured.speaks and all(f.launches >= LEADERBOARD_LAUNCHES for f in measured.found):
            return measured, points
        measured_.append((measured, points))
    first = measured_[0] if measured_ else (None, ())
    return next(((m, points) for m, points in measured_ if m.speaks), first)


def _checker(claim: Mapping[str, Any], sides: Sides, family: Family, points: Sequence[Point]) -> Checker:
    premises = [Premise.model_validate(p) for p in claim.get("premises", ())]
    return Checker(premises=premises, expect=claim["expect"], sides=sides, family=family, points=points)


def _few_launches(found: Found) -> str | None:
    if found.estimate.busy:
        return f"machine busy: {found.estimate.busy}"
    if found.estimate.num_launches < 2 and found.estimate.low is None:
        return "one launch gives no interval"
    if found.launches < LEADERBOARD_LAUNCHES:
        return f"exploratory: {number_of(found.launches, 'launch')}, {LEADERBOARD_LAUNCHES} are asked for"
    return None


def _why_not_run(claim: Mapping[str, Any], suite: str) -> str:
    if claim.get("needs") is not None:
        return f"needs {claim['needs']}: paceline run {suite} --tier full --runner local-{claim['needs']}"
    where = claim["measure"].get("where", {})
    if int(where.get("ranks") or 1) > LOCAL_RANKS:
        return f"needs: paceline run {suite} --tier full --runner netns-cpu"
    link = str(where.get("link", ""))
    runner = "netns-cpu" if link not in ("", "loopback") else "local-cpu"
    return f"needs: paceline run {suite} --runner {runner}"


def _versus_text(sides: Sides) -> str | None:
    if sides.other is None:
        return None
    where = _where_text(sides.other_where)
    return f"{sides.other} at {where}" if where else sides.other


def _where_text(where: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in where.items())
