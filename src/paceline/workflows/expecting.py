"""What a plan can be expected to tell, by the newest runs of its points here: comparisons, and its suites' claims."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.analysis.claims.results import ClaimResult, evaluate
from paceline.analysis.expectation import Expectation, expected
from paceline.analysis.points import points_of
from paceline.base.counting import number_of
from paceline.base.units import format_duration
from paceline.records.earlier_runs import RunTimes, known_times, newest_runs
from paceline.records.origin.provenance import suite_facts
from paceline.records.store.lookup import find_runs
from paceline.spec.plans.duration import block_times, budget_of, start_times
from paceline.spec.plans.plan import Plan, observations
from paceline.spec.suites.suite import Suite
from paceline.stats.verdicts import MANY_LAUNCHES
from paceline.workflows.stores import stores

MOST_CLAIMS = 4
"""How many claims that a plan could not tell are named."""


def expectation(plan: Plan, earlier: Sequence[RunTimes], results: Path | None) -> Expectation | None:
    """Return what a plan can be expected to decide; None where the number of launches is fixed.

    Args:
        plan: The plan.
        earlier: Times of earlier runs, oldest first.
        results: The store in use; None for the usual ones.
    """
    if "stopping" not in plan.data:
        return None
    known = known_times(earlier, plan.data)
    blocks = block_times(plan.data, observations(plan.data), known)
    starts = start_times(plan.data, known)
    launch_s = {
        name: blocks[name].planned_s + starts[group["group"]].likely_s / len(group["blocks"])
        for group in plan.data["groups"]
        for name in group["blocks"]
    }
    # `earlier` has none that was taken back: no file of the stores is read for that again
    records = find_runs(stores(results, new=True), newest_runs(earlier, plan.data), withdrawn={})
    points = [point for record in records for point in points_of(record)]
    return expected(plan.data, points, launch_s, budget_of(plan.data))


def expectation_text(plan: Plan, found: Expectation) -> str:
    """Say what can be expected of a plan."""
    if not found.run_ids:
        return "no earlier run on such a host says how many comparisons it will decide"
    budget_s = budget_of(plan.data)
    within = "" if math.isinf(budget_s) else f" within {format_duration(budget_s)}"
    runs = ", ".join(run_id[:13] for run_id in found.run_ids[:3]) + (" …" if len(found.run_ids) > 3 else "")
    text = (
        f"by run {runs} it can be expected to decide {found.num_decided} of "
        f"{number_of(found.num_known, 'comparison')}{within}"
    )
    return text + (f"; nothing is known of {found.num_unknown} more" if found.num_unknown else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """A claim for which a plan's launches are too few, by the spread of earlier ones."""

    suite: str
    claim: str
    launches: int
    """The most that the plan makes."""
    launches_needed: int | None
    """None where that are more than ``MANY_LAUNCHES``."""


def untold_claims(
    plan: Plan, suites: Iterable[Suite], earlier: Sequence[RunTimes], results: Path | None
) -> tuple[Untold, ...]:
    """Return the claims that a plan's launches could not tell, by the newest runs of its points here.

    Args:
        plan: The plan.
        suites: Its suites.
        earlier: Times of earlier runs, oldest first.
        results: The store in use; None for the usual ones.
    """
    runs = newest_runs(earlier, plan.data)
    if not runs:
        return ()
    most: dict[str, int] = {}
    for block in plan.blocks:
        most[block["suite"]] = max(most.get(block["suite"], 0), block["protocol"]["launches"])
    facts = suite_facts(suite for suite in suites if suite.name in most)
    return tuple(untold_of(evaluate(find_runs(stores(results, new=True), runs, withdrawn={}), facts), most))


def untold_of(claims: Iterable[ClaimResult], most: Mapping[str, int]) -> Iterable[Untold]:
    """Yield the claims that need more launches than their suite is given; those of unknown spread are not known."""
    for claim in claims:
        if claim.power is None or claim.suite not in most:
            continue
        needed, given = claim.power.launches_needed, most[claim.suite]
        if needed is None or needed > given:
            yield Untold(suite=claim.suite, claim=claim.claim_id, launches=given, launches_needed=needed)


def untold_text(untold: Sequence[Untold]) -> str:
    """Say which claims a plan's launches could not tell; nothing of none."""
    if not untold:
        return ""
    named = ", ".join(
        f"{u.claim} ({f'{u.launches_needed}' if u.launches_needed else f'more than {MANY_LAUNCHES}'} would)"
        for u in untold[:MOST_CLAIMS]
    )
    more = len(untold) - MOST_CLAIMS
    return (
        f"by the spread of earlier launches these are too few for {number_of(len(untold), 'claim')}: {named}"
        + (f" and {more} more (paceline claims list --power)" if more > 0 else "")
    )
