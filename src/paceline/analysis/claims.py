"""Claims: what papers say, held against what was measured.

A verdict needs the whole interval on one side of the expectation. Everything else says what it is: partly (the
direction holds, the size does not), not reproduced, inconclusive, or not run with what it would need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from paceline.analysis.claim_points import Found, Measured, Sides, measured_in, places_of
from paceline.analysis.evidence import OFF_BOARD_REASONS, PointKey
from paceline.analysis.points import LEADERBOARD_LAUNCHES, Point, grade_of
from paceline.base.family import Family, family_names, load_family
from paceline.records.store import RunRecord
from paceline.spec.grammar import Claim
from paceline.spec.papers import Paper
from paceline.stats.estimates import Estimate

LOCAL_RANKS = 4
"""Ranks up to which the shipped profile of this host's loopback goes."""
ClaimVerdictName = Literal["reproduced", "partly", "not reproduced", "inconclusive", "not run"]
WORST_FIRST: tuple[ClaimVerdictName, ...] = ("not reproduced", "inconclusive", "partly", "reproduced")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One paper with the verdicts of its claims, or the reason why there is none."""

    paper: Paper
    results: tuple[ClaimResult, ...] = ()
    verdict: str = "not run"
    reason: str | None = None


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


def evaluate(records: Iterable[RunRecord], suites: Sequence[Mapping[str, Any]]) -> list[ClaimResult]:
    """Evaluate every claim of some suites where it was last measured with enough launches, else where it was last.

    Args:
        records: Runs, in any order.
        suites: Facts of suites (``suite``, ``family``, ``claims``), such as ``provenance.suite_facts`` gives.
    """
    places = places_of(records, suites)
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
        Claim.model_validate(claim)
    except ValidationError:
        return False
    return True


def _evaluate_one(
    claim: Mapping[str, Any], suite: str, family: Family, places: Sequence[Sequence[Point]]
) -> ClaimResult:
    sides = Sides.of(claim)
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
    }
    measured = _deciding(places, sides, family, claim.get("needs"))
    if measured is None:
        return ClaimResult(**common, verdict="not run", reason=_why_not_run(claim, suite))
    if not measured.found:
        return ClaimResult(**common, verdict="inconclusive", reason=measured.failed)
    worst = min(measured.found, key=lambda f: _order(claim["expect"], f.estimate))
    verdict = _decide(claim["expect"], worst.estimate)
    if measured.failed is not None and verdict in ("reproduced", "partly"):
        verdict = "inconclusive"
    remarks = [measured.failed or _few_launches(worst)]
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
    )


def _deciding(
    places: Sequence[Sequence[Point]], sides: Sides, family: Family, needs: str | None
) -> Measured | None:
    """Return what decides: the newest place with enough launches, or where it failed, else the newest."""
    newest: Measured | None = None
    for points in places:
        if needs not in (None, points[0].run.runner.get("device")):
            continue
        measured = measured_in(points, sides, family)
        if not measured.found and measured.failed is None:
            continue
        newest = newest or measured
        if all(f.launches >= LEADERBOARD_LAUNCHES for f in measured.found):
            return measured
    return newest


def _few_launches(found: Found) -> str | None:
    if found.estimate.num_launches < 2 and found.estimate.low is None:
        return "one launch gives no interval"
    if found.launches < LEADERBOARD_LAUNCHES:
        return f"exploratory: {found.launches} launches, {LEADERBOARD_LAUNCHES} are asked for"
    return None


def _order(expect: Mapping[str, float], estimate: Estimate) -> tuple[int, float]:
    """Return what puts the worst first: the verdict, then the room on the right side of the expectation."""
    return WORST_FIRST.index(_decide(expect, estimate)), _room(expect, estimate)


def _room(expect: Mapping[str, float], estimate: Estimate) -> float:
    """Return how far an estimate stays on the right side of an expectation; the least decides among equal verdicts."""
    return min(_room_beside(kind, bound, estimate) for kind, bound in expect.items())


def _room_beside(kind: str, bound: float, estimate: Estimate) -> float:
    if estimate.low is None or estimate.high is None:
        return -math.inf
    if kind == "equal_within":
        return -max(abs(estimate.low - 1), abs(estimate.high - 1))
    return bound - estimate.high if kind.endswith("at_most") else estimate.low - bound


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


def _decide(expect: Mapping[str, float], estimate: Estimate) -> ClaimVerdictName:
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


@dataclass(slots=True)
class Ledger:
    """All papers with what is known of their claims."""

    rows: list[LedgerRow] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Number of papers by verdict."""
        counts: dict[str, int] = {}
        for row in self.rows:
            counts[row.verdict] = counts.get(row.verdict, 0) + 1
        return dict(sorted(counts.items()))


def ledger(papers: Mapping[str, Paper], results: Iterable[ClaimResult]) -> Ledger:
    """Give every paper a verdict or the reason why it has none."""
    by_paper: dict[str, list[ClaimResult]] = {}
    for result in results:
        if result.paper is not None:
            by_paper.setdefault(result.paper, []).append(result)
    built = Ledger()
    for paper in papers.values():
        found = tuple(by_paper.get(paper.slug, ()))
        verdict, reason = _paper_verdict(paper, found)
        built.rows.append(LedgerRow(paper=paper, results=found, verdict=verdict, reason=reason))
    return built


def _paper_verdict(paper: Paper, results: Sequence[ClaimResult]) -> tuple[str, str | None]:
    if paper.family == "outside":
        return "outside", paper.outside_reason
    measured = [r for r in results if r.verdict != "not run"]
    if measured:
        names = {r.verdict for r in measured}
        worst = min(names, key=WORST_FIRST.index)
        open_claims = len(results) - len(measured)
        return worst, f"{open_claims} further claims not run" if open_claims else None
    if results:
        return "not run", results[0].reason
    if paper.testable_claim.startswith("none"):
        return "not run", paper.testable_claim.removeprefix("none").lstrip(": ") or "nothing testable here"
    return (
        "not run",
        f"no claim declared yet; needs {', '.join(paper.needs)}" if paper.needs else "no claim declared yet",
    )
