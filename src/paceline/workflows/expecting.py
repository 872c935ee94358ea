"""What a plan that is measured until decided can be expected to decide, by the newest runs of its points here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from paceline.analysis.expectation import Expectation, expected
from paceline.analysis.points import points_of
from paceline.base.counting import number_of
from paceline.base.units import format_duration
from paceline.records.earlier_runs import RunTimes, known_times, newest_runs
from paceline.records.store.lookup import find_runs
from paceline.spec.plans.duration import block_times, budget_of, start_times
from paceline.spec.plans.plan import Plan, observations
from paceline.workflows.stores import stores


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
