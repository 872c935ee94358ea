"""Claims: what papers say, held against what was measured.

A verdict needs the whole interval on one side of the expectation. Everything else says what it is: partly (the
direction holds, the size does not), not reproduced, inconclusive, or not run with what it would need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from paceline.compare import LEADERBOARD_LAUNCHES, Cell, Point, grade_of, points_of
from paceline.evidence import evidence, params_key, place_of, with_defaults
from paceline.family import Family, load_family
from paceline.papers import Paper
from paceline.record import Run
from paceline.stats import (
    Estimate,
    Launches,
    compare_difference,
    compare_ratio,
    compare_unpaired,
    compare_unpaired_difference,
    estimate_value,
)
from paceline.store import RunRecord

ClaimVerdictName = Literal["reproduced", "partly", "not reproduced", "inconclusive", "not run"]


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
    reason: str | None = None
    worst: Estimate | None = None
    """The estimate that decided, over all points that the claim selects."""
    points: tuple[tuple[Mapping[str, Any], Estimate], ...] = ()
    run_id: str | None = None
    host_class: str | None = None
    grade: str | None = None
    """Evidence grade of what decided."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One paper with the verdicts of its claims, or the reason why there is none."""

    paper: Paper
    results: tuple[ClaimResult, ...] = ()
    verdict: str = "not run"
    reason: str | None = None


def expectation_text(expect: Mapping[str, float]) -> str:
    """Say an expectation in words."""
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

    A place is a version of the suite on one hardware, under one runner. A claim is about all points that were measured
    there: a long suite may be measured in parts, and a part of it, measured again, does not hide the others.

    Args:
        records: Runs, in any order.
        suites: Facts of suites (``suite``, ``family``, ``claims``), such as ``provenance.suite_facts`` gives.
    """
    families = {facts["suite"]: str(facts["family"]) for facts in suites}
    places: dict[str, dict[Place, list[Point]]] = {}
    for record in sorted(records, key=lambda r: r.run_id, reverse=True):
        for point in points_of(record):
            if families.get(point.suite) == point.family:
                place = (*place_of(point), point.suite_version)
                places.setdefault(point.suite, {}).setdefault(place, []).append(with_defaults(point))
    return [
        _evaluate_one(claim, facts["suite"], load_family(facts["family"]), places.get(facts["suite"], {}))
        for facts in suites
        for claim in facts.get("claims", ())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found at a point, or of all points together."""

    params: Mapping[str, Any]
    estimate: Estimate
    run: Run


Place = tuple[str, str, str, str | None, int]
"""What may stand in one table, and the version of the suite."""


def _evaluate_one(
    claim: Mapping[str, Any],
    suite: str,
    family: Family,
    places: Mapping[Place, Sequence[Point]],
) -> ClaimResult:
    measure, expect = claim["measure"], claim["expect"]
    versus = measure.get("versus")
    versus_map = {"technique": versus} if isinstance(versus, str) else dict(versus or {})
    common: dict[str, Any] = {
        "paper": claim.get("paper"),
        "suite": suite,
        "claim_id": claim["id"],
        "quote": claim["quote"],
        "scope": claim["scope"],
        "expectation": expectation_text(expect),
        "metric": measure["metric"],
        "technique": measure["technique"],
        "versus": _versus_text(measure["technique"], versus_map) if versus_map else None,
        "where": _where_text(measure.get("where", {})),
        "why": claim.get("why", ""),
    }
    found: list[tuple[list[Point], list[Found]]] = []
    for measured in places.values():
        candidates = _counting(measured, measure["technique"], measure["metric"])
        if not candidates or claim.get("needs") not in (None, candidates[0].run.runner.get("device")):
            continue
        own = [p for p in candidates if _selected(p, measure.get("where", {}), family)]
        estimates = _estimates(own, candidates, measure, versus_map, family, next(iter(expect)))
        if estimates:
            found.append((own, estimates))
        if estimates and all(f.estimate.num_launches >= LEADERBOARD_LAUNCHES for f in estimates):
            found = found[-1:]
            break
    if found:
        own, estimates = found[0]
        order = ["not reproduced", "inconclusive", "partly", "reproduced"]
        worst = min(
            estimates,
            key=lambda f: (order.index(_decide(expect, f.estimate)), _room(expect, f.estimate)),
        )
        failed = _failed(own, measure["technique"])
        verdict = _decide(expect, worst.estimate)
        if failed is not None and verdict in ("reproduced", "partly"):
            verdict = "inconclusive"
        return ClaimResult(
            **common,
            verdict=verdict,
            reason=failed or _few_launches(worst.estimate),
            worst=worst.estimate,
            points=tuple((f.params, f.estimate) for f in estimates),
            run_id=worst.run.run_id,
            host_class=worst.run.host_class,
            grade=max(grade_of(f.run, f.estimate.num_launches) for f in estimates),
        )
    return ClaimResult(**common, verdict="not run", reason=_why_not_run(claim, suite))


def _counting(measured: Sequence[Point], technique: str, metric: str) -> list[Point]:
    """Return one measurement of each point of a place: the best evidence among those under the newest contract."""
    contract = next((c.contract_id for p in measured if (c := p.cells.get((technique, metric)))), None)
    versions: dict[str, list[Point]] = {}
    for point in measured:
        cell = point.cells.get((technique, metric))
        if cell is None or cell.contract_id == contract:
            versions.setdefault(params_key(point), []).append(point)

    def counts(point: Point) -> tuple[bool, tuple[int, str]]:
        return (technique, metric) in point.cells or technique in point.failures, evidence(point)

    return [max(same, key=counts) for same in versions.values()]


def _few_launches(estimate: Estimate) -> str | None:
    if estimate.num_launches < 2 and estimate.low is None:
        return "one launch gives no interval"
    if estimate.num_launches < LEADERBOARD_LAUNCHES:
        return f"exploratory: {estimate.num_launches} launches, {LEADERBOARD_LAUNCHES} are asked for"
    return None


def _room(expect: Mapping[str, float], estimate: Estimate) -> float:
    """Return how far an estimate stays on the right side of an expectation; the least decides among equal verdicts."""
    kind, bound = next(iter(expect.items()))
    if estimate.low is None or estimate.high is None:
        return -math.inf
    if kind == "equal_within":
        return -max(abs(estimate.low - 1), abs(estimate.high - 1))
    return bound - estimate.high if kind.endswith("at_most") else estimate.low - bound


def _failed(own: Sequence[Point], technique: str) -> str | None:
    """Say at how many of the points that a claim selects its technique gave no number; None when at none."""
    bad = [p.failures[technique][0] for p in own if technique in p.failures]
    if not bad:
        return None
    return f"{technique} failed at {len(bad)} of {len(own)} points: {bad[0].status}: {bad[0].reason}"


def _why_not_run(claim: Mapping[str, Any], suite: str) -> str:
    if claim.get("needs") is not None:
        return f"needs {claim['needs']}: paceline run {suite} --tier full --runner local-{claim['needs']}"
    where = claim["measure"].get("where", {})
    link = str(where.get("link", ""))
    runner = "netns-cpu" if link not in ("", "loopback") else "local-cpu"
    return f"needs: paceline run {suite} --runner {runner}"


def _versus_text(technique: str, versus: Mapping[str, Any]) -> str:
    name = str(versus.get("technique") or technique)
    where = _where_text(versus.get("where", {}))
    return f"{name} at {where}" if where else name


def _where_text(where: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in where.items())


def _selected(point: Point, where: Mapping[str, Any], family: Family) -> bool:
    for key, raw in where.items():
        parameter = family.parameter(key)
        if parameter is None or point.params.get(key) != parameter.parse(raw):
            return False
    return True


def _estimates(
    own: Sequence[Point],
    everyone: Sequence[Point],
    measure: Mapping[str, Any],
    versus: Mapping[str, Any],
    family: Family,
    kind: str,
) -> list[Found]:
    """Return one estimate for every point that the claim selects and that was measured on both sides."""
    name = measure["metric"]
    found: list[Found] = []
    for point in own:
        cell = point.cells.get((measure["technique"], name))
        if cell is None:
            continue
        if kind.startswith("value"):
            estimate = estimate_value(cell.launches, scale=family.metric(name).scale)
            found.append(Found(params=point.params, estimate=estimate, run=point.run))
            continue
        other, paired = _other_side(point, everyone, measure, versus, family)
        if other is None:
            continue
        effect = _effect(cell, other, paired, kind)
        found.append(Found(params=point.params, estimate=effect, run=point.run))
    if kind.startswith("value") and family.metric(name).proportion and len(found) > 1:
        pooled = _pooled(own, measure, family)
        return [Found(params={}, estimate=pooled, run=max((f.run for f in found), key=lambda r: r.run_id))]
    return found


def _pooled(own: Sequence[Point], measure: Mapping[str, Any], family: Family) -> Estimate:
    """Pool the 0/1 samples of all selected points: a proportion is about all of them together."""
    values: dict[int, float] = {}
    samples: dict[int, Sequence[float]] = {}
    for index, point in enumerate(own):
        cell = point.cells.get((measure["technique"], measure["metric"]))
        for launch, drawn in (cell.samples if cell else {}).items():
            samples[index * 10_000 + launch] = drawn
            values[index * 10_000 + launch] = sum(drawn) / len(drawn)
    return estimate_value(Launches(values=values, samples=samples), scale="proportion")


def _other_side(
    point: Point,
    everyone: Sequence[Point],
    measure: Mapping[str, Any],
    versus: Mapping[str, Any],
    family: Family,
) -> tuple[Cell | None, bool]:
    """Find the cell that a claim compares with, and whether it shared launches point by point."""
    label = str(versus.get("technique") or measure["technique"])
    where = versus.get("where") or {}
    if not where:
        return point.cells.get((label, measure["metric"])), True
    wanted = dict(point.params)
    for key, value in where.items():
        parameter = family.parameter(key)
        if parameter is None:
            return None, False
        wanted[key] = parameter.parse(value)
    for other in everyone:
        if other.suite == point.suite and dict(other.params) == wanted:
            shared = other.run.run_id == point.run.run_id
            return other.cells.get((label, measure["metric"])), shared
    return None, False


def _effect(cell: Cell, other: Cell, paired: bool, kind: str) -> Estimate:
    if kind == "difference_at_most":
        difference = compare_difference if paired else compare_unpaired_difference
        return difference(cell.launches, other.launches)
    if paired and set(cell.values) & set(other.values):
        return compare_ratio(cell.launches, other.launches)
    return compare_unpaired(cell.launches, other.launches)


def _decide(expect: Mapping[str, float], estimate: Estimate) -> ClaimVerdictName:
    """Hold an interval against an expectation."""
    kind, bound = next(iter(expect.items()))
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
        order = ["not reproduced", "inconclusive", "partly", "reproduced"]
        names = {r.verdict for r in measured}
        worst = min(names, key=order.index)
        open_claims = len(results) - len(measured)
        return worst, f"{open_claims} further claims not run" if open_claims else None
    if results:
        return "not run", results[0].reason
    if paper.testable_claim.startswith("none"):
        return "not run", paper.testable_claim.removeprefix("none").lstrip(": ") or "nothing testable here"
    return (
        "not run",
        f"no suite yet; needs {', '.join(paper.needs)}" if paper.needs else "no suite yet",
    )
