"""One run as a person asks for it: what is planned of the suites, how it is measured here, and how it went."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import (
    EXIT_INCORRECT,
    EXIT_INFRASTRUCTURE,
    EXIT_OK,
    UserError,
    expected_one_of,
)
from paceline.base.families.family import load_family
from paceline.base.techniques.requirements import lacking
from paceline.drivers.driver import open_driver
from paceline.drivers.execute import JOBS, Outcome, execute
from paceline.drivers.job import read_job
from paceline.drivers.machine.devices import on_this_machine
from paceline.drivers.machine.occupation import occupied
from paceline.drivers.machine.quarantine import quarantined
from paceline.drivers.measure import measure
from paceline.drivers.progress import RunProgress
from paceline.records.earlier_runs import RunTimes, read_times
from paceline.records.format.record_file import PARTIAL, run_id_of
from paceline.records.store.folder import record_paths, sealed_paths
from paceline.spec import content
from paceline.spec.files.earlier_names import filters_today, techniques_today
from paceline.spec.own.techniques import join_user_techniques
from paceline.spec.plans.plan import Plan, Selection, make_plan
from paceline.spec.plans.unmatched import unmatched, warning
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.grammar import TIERS, TierName
from paceline.spec.suites.launches import Launches
from paceline.spec.suites.suite import Suite
from paceline.workflows.choosing import Say, expand_suites, split_names
from paceline.workflows.stores import stores

FAILED = ("incorrect", "refused", "invalid")
BROKEN = ("timeout", "crashed", "out_of_memory", "infrastructure")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """An interrupted run that goes on."""

    job: Path
    """Its job folder."""
    facts: Mapping[str, Any]
    """What was known of it when it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run that can be measured."""

    plan: Plan
    suites: Sequence[Suite] = ()
    """The plan's suites; those of a resumed run lie in its job folder."""
    warnings: Sequence[str] = ()
    """Whatever was asked for and is not in the plan."""
    resumed: Resumed | None = None


def prepare(
    suites: Sequence[str],
    *,
    tier: TierName,
    runner: str,
    techniques: Sequence[str] = (),
    user_files: Sequence[Path] = (),
    filters: Sequence[tuple[str, str]] = (),
    launches: Launches | None = None,
    budget_s: float | None = None,
    seed: int | None = None,
    one_by_one: bool = False,
    elsewhere: bool = False,
    say: Say,
) -> Prepared:
    """Load everything that a run needs and plan it; a user's technique joins every suite that it fits.

    Args:
        suites: Files, names or families.
        tier: How much of each suite.
        runner: Name or file of the runner profile.
        techniques: Only these, and the baseline; empty means all.
        user_files: Python files with techniques of the user's own.
        filters: Keys and values as texts: a point is kept that has one of the values of every key.
        launches: Number of launches of every block, or the range in which it is measured until decided; None means the
            suites' own.
        budget_s: Time after which no launch starts; every suite is then measured until decided.
        seed: All inputs and orders follow from it; None means new draws.
        one_by_one: Measure each suite to its end before the next begins, in the order given.
        elsewhere: Whether another machine will run it, with as many devices as the runner says.
        say: Told every warning.

    Raises:
        UserError: Nothing of the suites, techniques or files that were asked for is left, or a time for all suites is
            to be spent on one after the other.
    """
    if one_by_one and budget_s is not None:
        raise UserError(
            "a budget is spent where it decides most, over all suites: it does not go with one after the other",
            where="--budget",
            fix="leave out one of --budget and --one-by-one; each suite has a budget of its own (docs/suites.md)",
        )
    if tier not in TIERS:
        raise UserError(f"no tier is called '{tier}'", where="tier", expected=expected_one_of(tier, TIERS))
    loaded, strangers = join_user_techniques(expand_suites(suites, say=say, extra=user_files), user_files)
    chosen, renamed = filters_today(
        filters, {s.family.name: {p.name for p in s.family.parameters} for s in loaded}
    )
    for text in renamed:
        say(text)
    selection = Selection(
        tier=tier,
        techniques=techniques_today(split_names(techniques), (s.family.name for s in loaded)),
        filters=chosen,
        launches=launches,
        budget_s=budget_s,
        seed=seed,
        one_by_one=tuple(s.name for s in loaded) if one_by_one else (),
    )
    profile = load_runner(content.find_runner(runner))
    if not elsewhere:
        profile = on_this_machine(profile)
    plan = make_plan(loaded, profile, selection)
    warnings = [
        *map(warning, strangers),
        *unmatched(plan, loaded, profile, selection, user_files),
        *_without_packages(plan, loaded),
    ]
    for text in warnings:
        say(text)
    return Prepared(plan=plan, suites=loaded, warnings=warnings)


def _without_packages(plan: Plan, suites: Sequence[Suite]) -> list[str]:
    """Say which techniques of a plan require packages that are missing here, where it would run in this environment."""
    if plan.data["runner"]["driver"] != "local":
        return []
    planned = {(b["suite"], c["technique"]) for b in plan.blocks for c in b["cases"]}
    sources = {
        s.info.name: s
        for suite in suites
        for s in suite.sources.values()
        if (suite.name, s.info.name) in planned
    }
    return [
        f"{name} will be unsupported: it {reason}"
        for name, source in sorted(sources.items())
        for reason in lacking(source.info.requires.packages)
    ]


def prepare_again(store: Path, name: str) -> Prepared:
    """Find the interrupted run of a name; job folders of runs that ended stay, and are none.

    Args:
        store: Where it was recorded.
        name: Its id, or the beginning of it.

    Raises:
        UserError: No interrupted run is called so, or several are; one that ended, or whose job folder is gone.
    """
    jobs = store / JOBS
    listed = [p for p in jobs.iterdir() if p.is_dir()] if jobs.is_dir() else []
    sealed = {run_id_of(p): p for p in sealed_paths(store)}
    open_ = sorted(p for p in listed if p.name.startswith(name) and p.name not in sealed)
    exact = [p for p in open_ if p.name == name]
    if len(exact or open_) == 1:
        job = (exact or open_)[0].resolve()
        plan, facts = read_job(job)
        return Prepared(plan=plan, resumed=Resumed(job=job, facts=facts))
    complete = [path for run_id, path in sealed.items() if run_id.startswith(name)]
    if not open_ and len(complete) == 1:
        raise UserError(
            f"run {run_id_of(complete[0])} is complete; there is nothing to resume",
            where=str(complete[0]),
            fix=f"paceline compare {run_id_of(complete[0])} --results {shlex.quote(str(store))}",
        )
    waiting = [p.name for p in listed if p.name not in sealed]
    partial = [run_id_of(p) for p in record_paths(store, partial=True) if p.name.endswith(PARTIAL)]
    lost = [run_id for run_id in partial if run_id.startswith(name) and run_id not in waiting]
    if lost and not open_:
        raise UserError(
            f"run {lost[0]} was interrupted, and its job folder is gone: it cannot go on",
            where=str(jobs / lost[0]),
            expected="the job folder, in which plan, engine and techniques of the run lie",
            fix="measure its suites again, as a new run",
        )
    fitting = f": {', '.join(p.name for p in open_)}" if open_ else ""
    raise UserError(
        f"'{name}' fits {len(open_)} interrupted runs{fitting}",
        where=str(jobs),
        expected="more characters of the run id" if open_ else expected_one_of(name, waiting),
        fix=f"paceline store ls --partial --results {shlex.quote(str(store))}",
    )


def earlier_runs(results: Path | None) -> list[RunTimes]:
    """Return what the runs of the stores in use took."""
    return read_times(stores(results, new=True))


def perform(
    prepared: Prepared,
    store: Path,
    *,
    say: Say,
    earlier: Sequence[RunTimes] = (),
    quiet: bool = True,
    wait_s: float = 0.0,
    allow_concurrent: bool = False,
    argv: Sequence[str] | None = None,
    on_suite: Callable[[str, Path], None] = lambda suite, record: None,
) -> Outcome:
    """Measure what was prepared, or the rest of it, and record it in a store.

    Args:
        prepared: What to measure.
        store: Folder of records.
        say: Told what a person should know: a standing quarantine, another run that is waited for, a busy machine.
        earlier: Earlier runs, on which the remaining time rests at first.
        quiet: Draw no progress bar.
        wait_s: How long to wait while another run measures on this machine.
        allow_concurrent: Measure although another run does.
        argv: What the record says of how the run was asked for; None for this process's command line.
        on_suite: Told each suite that is complete, with the record so far, where they are measured one by one.

    Raises:
        UserError: The store cannot be written.
        InfrastructureError: The machine is taken, the launcher failed, or the disk is full.
    """
    plan, runner = prepared.plan, prepared.plan.data["runner"]
    if (standing := quarantined(runner["name"])) is not None:
        say(standing.text())
    with (
        occupied(
            runner,
            wait_s=wait_s,
            allow_concurrent=allow_concurrent,
            elsewhere=all(is_elsewhere(block) for block in plan.blocks),
            say=say,
        ) as place,
        RunProgress(plan, earlier, quiet=quiet) as progress,
    ):

        def told(suite: str, record: Path) -> None:
            with progress.aside():
                on_suite(suite, record)

        if (again := prepared.resumed) is None:
            return measure(
                plan, prepared.suites, store, place=place, argv=argv, on_event=progress.event, on_suite=told
            )
        place.announce(again.facts["run_id"])
        driver = open_driver(runner["driver"])
        return execute(
            again.job, plan, again.facts, store, driver, progress.event, resume=True, on_suite=told
        )


def is_elsewhere(block: Mapping[str, Any]) -> bool:
    """Tell whether programs that the harness has not started do the work of a block."""
    family = load_family(block["family"])
    return family.is_elsewhere(str(block["params"][family.operation_key]), block["params"])


def exit_code(outcome: Outcome) -> int:
    """Return the command's exit code: wrong results weigh more than broken ones."""
    if outcome.interrupted:
        return EXIT_INFRASTRUCTURE
    if any(outcome.statuses.get(s) for s in FAILED):
        return EXIT_INCORRECT
    if any(outcome.statuses.get(s) for s in BROKEN) or outcome.num_missing:
        return EXIT_INFRASTRUCTURE
    return EXIT_OK
