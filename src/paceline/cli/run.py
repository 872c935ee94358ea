"""``paceline plan`` and ``paceline run``."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from paceline.analysis.compare import compare_points, points_of
from paceline.analysis.failures import grouped
from paceline.base.errors import EXIT_INCORRECT, EXIT_INFRASTRUCTURE, EXIT_OK, UserError, expected_one_of
from paceline.base.units import format_duration
from paceline.cli.estimates import earlier_runs, estimate_text
from paceline.cli.options import (
    default_results,
    expand_suites,
    json_option,
    launch_options,
    machine_options,
    parse_filters,
    print_json,
    results_option,
    split_names,
    warn,
    wide_option,
)
from paceline.drivers.driver import open_driver
from paceline.drivers.execute import JOBS, Outcome, execute
from paceline.drivers.job import read_job
from paceline.drivers.machine.occupation import occupied
from paceline.drivers.machine.quarantine import quarantined
from paceline.drivers.measure import measure
from paceline.drivers.progress import RunProgress
from paceline.records.earlier_runs import RunTimes, plan_estimate
from paceline.records.record_file import PARTIAL, run_id_of
from paceline.records.storage import resume_command
from paceline.records.store import RunRecord, read_record, record_paths, sealed_paths
from paceline.report.stops import stop_lines
from paceline.report.tables import board_table
from paceline.spec import content
from paceline.spec.grammar import TIERS, TierName
from paceline.spec.launches import Launches
from paceline.spec.names import filters_today, techniques_today
from paceline.spec.plan import Plan, Selection, canonical, make_plan
from paceline.spec.profile import load_runner
from paceline.spec.suite import Suite
from paceline.spec.unmatched import unmatched, warning
from paceline.spec.user_techniques import join_user_techniques

MAX_SKIPS_SHOWN = 12
FAILED = ("incorrect", "refused", "invalid")
BROKEN = ("timeout", "crashed", "out_of_memory", "infrastructure")


def _selection_options(command: Any) -> Any:
    for option in (
        click.option("--seed", type=int, default=None, help="Fix all seeds of inputs and order."),
        launch_options,
        click.option(
            "--filter",
            "filters",
            multiple=True,
            metavar="KEY=VALUE,…",
            help="Keep the points with one of the values.",
        ),
        click.option("--techniques", multiple=True, help="Only these (and the baseline)."),
        click.option(
            "--technique",
            "user_files",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A Python file with a technique of your own.",
        ),
        click.option("--runner", default="local-cpu", show_default=True, help="Runner profile."),
        click.option(
            "--tier",
            type=click.Choice(TIERS),
            default="standard",
            show_default=True,
            help="How much of each suite.",
        ),
    ):
        command = option(command)
    return command


def resolve(
    suites: Sequence[str],
    tier: TierName,
    runner: str,
    techniques: Sequence[str],
    user_files: Sequence[Path],
    filters: Sequence[str],
    launches: Launches | None,
    seed: int | None,
    budget_s: float | None = None,
) -> tuple[Plan, list[Suite], list[str]]:
    """Load everything that a run needs and plan it; a user's technique joins every suite that it fits.

    Returns:
        The plan, its suites, and a warning for whatever was asked for and is not in it.

    Raises:
        UserError: Nothing of the suites, techniques or files that were asked for is left.
    """
    loaded, strangers = join_user_techniques(expand_suites(suites, extra=user_files), user_files)
    chosen, renamed = filters_today(
        parse_filters(filters), {s.family.name: {p.name for p in s.family.parameters} for s in loaded}
    )
    for text in renamed:
        warn(text)
    selection = Selection(
        tier=tier,
        techniques=techniques_today(split_names(techniques), (s.family.name for s in loaded)),
        filters=chosen,
        launches=launches,
        budget_s=budget_s,
        seed=seed,
    )
    profile = load_runner(content.find_runner(runner))
    plan = make_plan(loaded, profile, selection)
    warnings = [*map(warning, strangers), *unmatched(plan, loaded, profile, selection, user_files)]
    for text in warnings:
        warn(text)
    return plan, loaded, warnings


@click.command("plan")
@click.argument("suites", nargs=-1, required=True)
@_selection_options
@wide_option
@results_option
@json_option
def plan_command(
    suites: tuple[str, ...], wide: bool, results: Path | None, as_json: bool, **options: Any
) -> None:
    """Say what a run would measure, skip and cost, without measuring.

    The time rests on earlier runs of this host where there are any, else on a formula; it says which.

    SUITES are files, names (collectives/all-reduce) or families (collectives).
    """
    plan, _, warnings = resolve(suites, **options)
    click.echo(_shown(plan, earlier_runs(results), warnings, as_json, wide=wide))


def _shown(
    plan: Plan, earlier: Sequence[RunTimes], warnings: Sequence[str], as_json: bool, *, wide: bool
) -> str:
    """Return a plan as text or JSON.

    What earlier runs say of its time, and what was asked for and is not in it, stands beside it and is no part of its
    digest.
    """
    if not as_json:
        return describe_plan(plan, earlier, wide=wide)
    beside = {"estimate": plan_estimate(plan, earlier), "warnings": list(warnings)}
    return canonical({**plan.data, **beside})


def describe_plan(plan: Plan, earlier: Sequence[RunTimes] = (), *, wide: bool = False) -> str:
    """Return a plan as text: what will run, what is skipped and why, how long it takes by earlier runs.

    ``wide`` adds the most that its time-outs allow.
    """
    lines = [
        f"{plan.num_cases} cases in {len(plan.blocks)} blocks, {plan.num_results} results; "
        f"{estimate_text(plan, plan_estimate(plan, earlier), wide=wide)}"
    ]
    for name, blocks in _by_suite(plan).items():
        labels = sorted({c["label"] for b in blocks for c in b["cases"]})
        launches = launches_text(blocks[0]["protocol"])
        lines.append(f"  {name}: {len(blocks)} points, {launches}: {', '.join(labels)}")
    reasons = Counter(s["reason"] for s in plan.data["skipped"])
    if reasons:
        lines.append(f"{sum(reasons.values())} skipped:")
        lines += [f"  {count} × {reason}" for reason, count in reasons.most_common(MAX_SKIPS_SHOWN)]
        if len(reasons) > MAX_SKIPS_SHOWN:
            lines.append(f"  … and {len(reasons) - MAX_SKIPS_SHOWN} more reasons (paceline plan --json)")
    return "\n".join(lines)


def launches_text(protocol: Mapping[str, Any]) -> str:
    """Say how many launches a protocol makes."""
    if "looks" in protocol:
        budget = f" or {format_duration(protocol['budget_s'])} are over" if protocol["budget_s"] else ""
        return f"{protocol['looks'][0]} to {protocol['launches']} launches until decided{budget}"
    return f"{protocol['launches']} launch" + ("es" if protocol["launches"] != 1 else "")


def _by_suite(plan: Plan) -> dict[str, list[Any]]:
    suites: dict[str, list[Any]] = {}
    for block in plan.blocks:
        suites.setdefault(block["suite"], []).append(block)
    return suites


@click.command("run")
@click.argument("suites", nargs=-1)
@_selection_options
@results_option
@click.option("--resume", metavar="RUN", default=None, help="Finish an interrupted run.")
@click.option("--dry-run", is_flag=True, help="Plan only.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
@machine_options
@wide_option
@json_option
def run(
    suites: tuple[str, ...],
    results: Path | None,
    resume: str | None,
    dry_run: bool,
    quiet: bool,
    wait_s: float,
    allow_concurrent: bool,
    wide: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure suites and record the result.

    SUITES are files, names (collectives/all-reduce) or families (collectives). Ctrl-C keeps what finished;
    --resume does the rest.
    """
    store = results or default_results()
    warnings: list[str] = []
    if resume is not None:
        _refuse_beside_resume(suites, resume)
        plan, facts, job = _resumed(store, resume)
    else:
        if not suites:
            raise UserError("no suite given", fix="paceline list suites")
        plan, loaded, warnings = resolve(suites, **options)
    earlier = earlier_runs(results)
    if dry_run:
        click.echo(_shown(plan, earlier, warnings, as_json, wide=wide))
        return
    if not as_json and not quiet:
        click.echo(describe_plan(plan, earlier, wide=wide), err=True)
    if (standing := quarantined(plan.data["runner"]["name"])) is not None:
        warn(standing.text())
    runner = plan.data["runner"]
    with (
        occupied(runner, wait_s=wait_s, allow_concurrent=allow_concurrent, say=warn) as place,
        RunProgress(plan, earlier, quiet=quiet or as_json) as progress,
    ):
        if resume is not None:
            place.announce(facts["run_id"])
            driver = open_driver(runner["driver"])
            outcome = execute(job, plan, facts, store, driver, progress.event, resume=True)
        else:
            outcome = measure(plan, loaded, store, place=place, on_event=progress.event)
    _report(outcome, store, as_json, warnings, wide=wide)
    sys.exit(exit_code(outcome))


SELECTING = ("seed", "launches", "budget_s", "filters", "techniques", "user_files", "runner", "tier")


def _refuse_beside_resume(suites: Sequence[str], run: str) -> None:
    """Refuse what chooses a run's cases beside a run whose cases are chosen."""
    context = click.get_current_context()
    sources = {key: context.get_parameter_source(key) for key in SELECTING}
    options = {p.name: p.opts[0] for p in context.command.params}
    given = [options[key] for key, source in sources.items() if source is ParameterSource.COMMANDLINE]
    if suites or given:
        raise UserError(
            f"a run that is resumed has its plan: {', '.join([*suites, *given])} would change nothing",
            where="--resume",
            fix=f"paceline run --resume {run}",
        )


def _resumed(store: Path, name: str) -> tuple[Plan, dict[str, Any], Path]:
    """Find the interrupted run of a name; job folders of runs that ended stay, and are none."""
    jobs = store / JOBS
    listed = [p for p in jobs.iterdir() if p.is_dir()] if jobs.is_dir() else []
    sealed = {run_id_of(p): p for p in sealed_paths(store)}
    open_ = sorted(p for p in listed if p.name.startswith(name) and p.name not in sealed)
    exact = [p for p in open_ if p.name == name]
    if len(exact or open_) == 1:
        job = (exact or open_)[0].resolve()
        return *read_job(job), job
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


def exit_code(outcome: Outcome) -> int:
    """Return the command's exit code: wrong results weigh more than broken ones."""
    if outcome.interrupted:
        return EXIT_INFRASTRUCTURE
    if any(outcome.statuses.get(s) for s in FAILED):
        return EXIT_INCORRECT
    if any(outcome.statuses.get(s) for s in BROKEN) or outcome.num_missing:
        return EXIT_INFRASTRUCTURE
    return EXIT_OK


def say_failures(record: RunRecord) -> None:
    """Say each reason for which cases have no number once, on stderr."""
    for failure in grouped(record.measurements):
        click.echo(failure.text(), err=True)


def _report(
    outcome: Outcome, store: Path, as_json: bool, warnings: Sequence[str] = (), *, wide: bool = False
) -> None:
    if as_json:
        failures = grouped(read_record(outcome.path).measurements) if outcome.path else []
        print_json(
            {
                "run_id": outcome.run_id,
                "record": str(outcome.path) if outcome.path else None,
                "statuses": dict(outcome.statuses),
                "missing": outcome.num_missing,
                "interrupted": outcome.interrupted,
                "measuring_s": outcome.measuring_s,
                "failures": [f.facts() for f in failures],
                "warnings": list(warnings),
            }
        )
        return
    if outcome.path is None:
        click.echo(f"interrupted; {outcome.num_missing} results are missing, the rest is kept")
        click.echo(f"go on with: {resume_command(outcome.run_id, store)}")
        return
    record = read_record(outcome.path)
    points = points_of(record)
    comparisons = compare_points(points)
    for suite in dict.fromkeys(p.suite for p in points):
        table = board_table([p for p in points if p.suite == suite], comparisons, wide=wide)
        click.echo(table.render(wide=wide))
    for line in stop_lines(record):
        click.echo(line)
    say_failures(record)
    counts = ", ".join(f"{n} {status}" for status, n in sorted(outcome.statuses.items()))
    click.echo(f"{counts} in {format_duration(outcome.measuring_s)}; record {outcome.path}")
