"""One run from suites to a record: what ``run``, ``calibrate``, ``reproduce`` and conformance tests have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline import __version__
from paceline.base.redaction import redact_arguments
from paceline.drivers.driver import open_driver
from paceline.drivers.execute import JOBS, Outcome, execute
from paceline.drivers.job import build_job
from paceline.drivers.machine.occupation import Occupation
from paceline.records.identity import new_run_id, utc
from paceline.records.origin.provenance import code_state, suite_facts, technique_facts, used_files
from paceline.records.store.storage import check_writable
from paceline.spec.plans.plan import Plan
from paceline.spec.suites.suite import Suite


def make_facts(
    plan: Plan,
    suites: Sequence[Suite],
    *,
    reason: str = "manual",
    linked_run: str | None = None,
    machine: Mapping[str, Any] | None = None,
    argv: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return what the controller knows of a run before it begins.

    Args:
        plan: What will run.
        suites: The plan's suites.
        reason: Why it runs: manual, calibrate, confirm, …
        linked_run: An earlier run that this one repeats or confirms.
        machine: How idle the machine was, and whose; None where nobody looked.
        argv: How it was asked for; None for this process's command line.
    """
    return {
        "run_id": new_run_id(),
        "started": utc(),
        "reason": reason,
        "argv": redact_arguments(["paceline", *sys.argv[1:]] if argv is None else argv),
        "tool_version": __version__,
        "code": code_state(used=used_files(suites, plan.blocks)),
        "suites": suite_facts(suites, plan.blocks),
        "techniques": technique_facts(suites, plan.blocks),
        "plan_sha256": plan.sha256,
        "linked_run": linked_run,
        "machine": dict(machine) if machine else None,
    }


def measure(
    plan: Plan,
    suites: Sequence[Suite],
    store: Path,
    *,
    reason: str = "manual",
    linked_run: str | None = None,
    place: Occupation | None = None,
    argv: Sequence[str] | None = None,
    on_event: Callable[[Mapping[str, Any]], None] = lambda event: None,
    on_suite: Callable[[str, Path], None] = lambda suite, record: None,
) -> Outcome:
    """Build the job folder, run it through the runner's driver, and record it in a store (``execute``).

    Raises:
        UserError: The store cannot be written.
        InfrastructureError: The launcher failed before it could say anything, or the disk is full.
    """
    check_writable(store)
    machine = place.facts if place is not None else None
    facts = make_facts(plan, suites, reason=reason, linked_run=linked_run, machine=machine, argv=argv)
    if place is not None:
        place.announce(facts["run_id"])
    job = (store / JOBS / facts["run_id"]).resolve()
    build_job(job, plan, suites, facts)
    driver = open_driver(plan.data["runner"]["driver"])
    return execute(job, plan, facts, store, driver, on_event, on_suite=on_suite)
