"""The ledger of papers as it stands: every claim evaluated on the runs of the stores in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from paceline.analysis.claims.costs import Cost
from paceline.analysis.claims.headlines import PAPER_VERDICTS, HeadlineResult, LedgerRow, ledger
from paceline.analysis.claims.matrix import Matrix
from paceline.analysis.claims.points import Premised
from paceline.analysis.claims.power import Power
from paceline.analysis.claims.results import ClaimResult, evaluate, with_own_suites
from paceline.analysis.claims.verdicts import CONFORMANCE, NullFound
from paceline.base.errors import UserError, expected_one_of
from paceline.records.origin.provenance import suite_facts
from paceline.spec import content
from paceline.spec.ledger.papers import load_papers
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.stores import load_kept


def current_ledger(
    results: Path | None,
    *,
    family: str | None = None,
    verdict: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[list[LedgerRow], dict[str, int], list[ClaimResult]]:
    """Evaluate the claims of all shipped and measured suites on the stored runs, and give every paper its row.

    Args:
        results: The store; None means the one in use and the published runs beside it.
        family: Only papers and claims of this family; None means all.
        verdict: Only those with this verdict; None means all.
        say: Told of each record that is left out, and why.

    Returns:
        The papers, the number of all papers by verdict, and the claims.

    Raises:
        UserError: There is no such family or verdict.
    """
    papers = load_papers()
    # before the runs are read, which takes a while
    _check_choice("--family", family, {p.family for p in papers.values()})
    _check_choice("--verdict", verdict, {*PAPER_VERDICTS, *CONFORMANCE.values()})
    records = load_kept(results, say=say).records
    facts = suite_facts(load_suite(path) for path in content.suite_files().values())
    found = evaluate(records, with_own_suites(facts, records))
    built = ledger(papers, found)
    rows = [r for r in built.rows if family in (None, r.paper.family) and verdict in (None, r.verdict)]
    claims = [
        c for c in found if family in (None, c.suite.partition("/")[0]) and verdict in (None, c.verdict)
    ]
    return rows, built.counts(), claims


def claim_counts(claims: Iterable[ClaimResult]) -> dict[str, dict[str, int]]:
    """Count claims by verdict, by how their premises stand, and by what would settle them.

    A claim that several things would settle counts with each of them.
    """
    given = list(claims)
    counted = {
        "verdict": Counter[str](c.verdict for c in given),
        "premises": Counter[str](c.premise for c in given),
        "settled_by": Counter[str](kind for c in given for kind in c.settled_by),
    }
    return {name: dict(sorted(counts.items())) for name, counts in counted.items()}


def _check_choice(option: str, name: str | None, known: set[str]) -> None:
    if name is not None and name not in known:
        raise UserError(f"no paper is of '{name}'", where=option, expected=expected_one_of(name, known))


def claim_facts(claim: ClaimResult) -> dict[str, Any]:
    """Return a claim's result as plain data."""
    estimate = claim.worst
    return {
        "paper": claim.paper,
        "suite": claim.suite,
        "claim": claim.claim_id,
        "quote": claim.quote,
        "scope": claim.scope,
        "whose": claim.whose,
        "said": dict(claim.said) or None,
        "against": dict(claim.against) or None,
        "metric": claim.metric,
        "technique": claim.technique,
        "versus": claim.versus,
        "where": claim.where,
        "expectation": claim.expectation,
        "verdict": claim.verdict,
        "reason": claim.reason,
        "stands_for": "reproduction" if claim.reproduces else "conformance",
        "null": _null_facts(claim.null) if claim.null else None,
        "costs": [_cost_facts(cost) for cost in claim.costs],
        "matrix": _matrix_facts(claim.matrix) if claim.matrix else None,
        "power": _power_facts(claim.power) if claim.power else None,
        "points_reason": dict(claim.points_reason) or None,
        "assumed": dict(claim.assumed) or None,
        "premise": claim.premise,
        "premises": [_premise_facts(p) for p in claim.premises],
        "settled_by": list(claim.settled_by),
        "value": estimate.value if estimate else None,
        "low": estimate.low if estimate else None,
        "high": estimate.high if estimate else None,
        "launches": estimate.num_launches if estimate else 0,
        "points": [
            {"params": dict(p), "value": e.value, "low": e.low, "high": e.high} for p, e in claim.points
        ],
        "run_id": claim.run_id,
        "host_class": claim.host_class,
    }


def headline_facts(row: HeadlineResult) -> dict[str, Any]:
    """Return a paper's headline as plain data: what it says, how it is tested, by which claims, with which verdict."""
    headline = row.headline
    return {
        "says": headline.says,
        "place": headline.place,
        "tested": row.how,
        "verdict": row.verdict,
        "claims": list(headline.claims),
        "form": headline.form or None,
        "untestable": headline.untestable or None,
        "untested": headline.untested or None,
        "settled_by": headline.settled_by,
        "test": headline.test or None,
    }


def _null_facts(null: NullFound) -> dict[str, Any]:
    found = null.estimate
    return {
        "technique": null.technique,
        "verdict": null.verdict,
        "value": found.value if found else None,
        "low": found.low if found else None,
        "high": found.high if found else None,
    }


def _cost_facts(cost: Cost) -> dict[str, Any]:
    found = cost.effect
    return {
        "metric": cost.metric,
        "technique": cost.payer,
        "kind": cost.kind,
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "params": dict(cost.params),
        "points": [cost.num_points, cost.of_points],
    }


def _power_facts(power: Power) -> dict[str, Any]:
    """Return what a design resolves beside what its claim needs: relative for ratios, in the unit for differences."""
    return {
        "resolves": power.resolves,
        "needs": power.needs,
        "kind": power.kind,
        "tells": power.tells,
        "launches": power.launches,
        "launches_needed": power.launches_needed,
    }


def _matrix_facts(matrix: Matrix) -> dict[str, Any]:
    """Return at how many points of its suite a claim holds, and what it comes to at each."""
    return {
        "holds": matrix.num_holding,
        "of": len(matrix.points),
        "selected": matrix.num_selected,
        "premise_not_met": matrix.num_silent,
        "points": [
            {
                "params": dict(p.params),
                "value": p.estimate.value,
                "low": p.estimate.low,
                "high": p.estimate.high,
                "holds": p.holds,
                "selected": p.selected,
                "premises_met": p.premises_met,
            }
            for p in matrix.points
        ],
    }


def _premise_facts(premise: Premised) -> dict[str, Any]:
    found = premise.found
    return {
        "says": premise.says,
        "asked": premise.asked,
        "bound": premise.bound,
        "met": premise.met,
        "value": found.value if found else None,
        "low": found.low if found else None,
        "high": found.high if found else None,
        "settled_by": premise.settled_by,
        "command": premise.command or None,
        "machine": premise.machine or None,
    }
