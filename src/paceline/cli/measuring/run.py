"""``paceline plan`` and ``paceline run``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from paceline.analysis.compare import compare_points
from paceline.analysis.failures import grouped
from paceline.analysis.points import points_of
from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.base.units import format_duration
from paceline.cli.measuring.choice import choice_options
from paceline.cli.measuring.estimates import estimate_text
from paceline.cli.measuring.memory_table import memory_facts, memory_text
from paceline.cli.options import (
    json_option,
    launch_options,
    machine_options,
    print_json,
    results_option,
    together,
    warn,
    wide_option,
)
from paceline.drivers.execute import Outcome
from paceline.records.earlier_runs import RunTimes, plan_estimate
from paceline.records.store.folder import RunRecord, read_record
from paceline.records.store.storage import resume_command
from paceline.report.tables.results import suite_tables
from paceline.report.tables.terminal import terminal_width, wrapped
from paceline.report.words.stops import stop_lines
from paceline.spec.plans.plan import Plan, canonical
from paceline.worker.machine.host import memory_bytes
from paceline.workflows.expecting import expectation, expectation_text, untold_claims, untold_text
from paceline.workflows.footprints import needs_of
from paceline.workflows.running import Prepared, earlier_runs, exit_code, perform, prepare, prepare_again
from paceline.workflows.stores import default_results

MAX_SKIPS_SHOWN = 12


_selection_options = together(
    launch_options,
    click.option(
        "--one-by-one",
        is_flag=True,
        help="Measure each suite to its end before the next, in the order given, and print its table at once [default: "
        "launches of all suites in turn, so that slow drift meets them all].",
    ),
    click.option("--techniques", multiple=True, help="Measure only these techniques, and the baseline."),
    choice_options,
)


@click.command("plan")
@click.argument("suites", nargs=-1, required=True)
@_selection_options
@click.option(
    "--memory",
    is_flag=True,
    help="Print what each case needs of a rank's memory, and whether there is room to train.",
)
@wide_option
@results_option
@json_option
def plan_command(
    suites: tuple[str, ...], memory: bool, wide: bool, results: Path | None, as_json: bool, **options: Any
) -> None:
    """Print what a run would measure and skip, and how long it would take, without measuring.

    The time is estimated from earlier runs on this class of host, or else by a formula; the output says which.

    SUITES are files, names (collectives/all-reduce) or families (collectives).
    """
    prepared = prepare(suites, say=warn, **options)
    if memory:
        needs, machine = needs_of(prepared.plan), memory_bytes()
        if as_json:
            print_json(memory_facts(needs, machine))
        else:
            click.echo(memory_text(needs, machine, None if wide else terminal_width()))
        return
    click.echo(_shown(prepared, earlier_runs(results), results, as_json, wide=wide))


def _shown(
    prepared: Prepared, earlier: Sequence[RunTimes], results: Path | None, as_json: bool, *, wide: bool
) -> str:
    """Return a plan as text or JSON.

    What earlier runs say of its time and of what it will decide, and what was asked for and is not in it, stands beside
    it and is no part of its digest.
    """
    plan = prepared.plan
    found = expectation(plan, earlier, results)
    untold = untold_claims(plan, prepared.suites, earlier, results)
    if not as_json:
        told = [expectation_text(plan, found) if found is not None else "", untold_text(untold)]
        added = [_laid_out(text, wide=wide) for text in told if text]
        return "\n".join([describe_plan(plan, earlier, wide=wide), *added])
    more: dict[str, Any] = {
        "estimate": plan_estimate(plan, earlier),
        "warnings": list(prepared.warnings),
        **({"expected": asdict(found)} if found is not None else {}),
        **({"untold_claims": [asdict(u) for u in untold]} if untold else {}),
    }
    return canonical({**plan.data, **more})


def describe_plan(plan: Plan, earlier: Sequence[RunTimes] = (), *, wide: bool = False) -> str:
    """Return a plan as text: what will run, what is skipped and why, how long it takes by earlier runs.

    It is as wide as the terminal. ``wide`` adds the most that its time-outs allow, and breaks no lines.
    """
    lines = [
        f"{number_of(plan.num_cases, 'case')} in {number_of(len(plan.blocks), 'block')}, "
        f"{number_of(plan.num_results, 'result')}; "
        f"{estimate_text(plan, plan_estimate(plan, earlier), wide=wide)}"
    ]
    for name, blocks in _by_suite(plan).items():
        labels = sorted({c["label"] for b in blocks for c in b["cases"]})
        launches = launches_text(blocks[0]["protocol"])
        lines.append(f"  {name}: {number_of(len(blocks), 'point')}, {launches}: {', '.join(labels)}")
    reasons = Counter(s["reason"] for s in plan.data["skipped"])
    if reasons:
        lines.append(f"{sum(reasons.values())} skipped:")
        lines += [f"  {count} × {reason}" for reason, count in reasons.most_common(MAX_SKIPS_SHOWN)]
        if len(reasons) > MAX_SKIPS_SHOWN:
            lines.append(
                f"  … and {len(reasons) - MAX_SKIPS_SHOWN} more reasons (paceline plan SUITE --json)"
            )
    return _laid_out("\n".join(lines), wide=wide)


def _laid_out(text: str, *, wide: bool) -> str:
    """Break lines that the terminal is too narrow for."""
    if wide:
        return text
    width = terminal_width()
    lines = [(line, line.lstrip(" ")) for line in text.split("\n")]
    return "\n".join(wrapped(own, width, line[: len(line) - len(own)]) for line, own in lines)


def launches_text(protocol: Mapping[str, Any]) -> str:
    """Say how many launches a protocol makes."""
    if "looks" in protocol:
        budget = f" or {format_duration(protocol['budget_s'])} are over" if protocol["budget_s"] else ""
        return f"{protocol['looks'][0]} to {number_of(protocol['launches'], 'launch')} until decided{budget}"
    return number_of(protocol["launches"], "launch")


def _by_suite(plan: Plan) -> dict[str, list[Any]]:
    suites: dict[str, list[Any]] = {suite: [] for suite in plan.data.get("one_by_one", ())}
    for block in plan.blocks:
        suites.setdefault(block["suite"], []).append(block)
    return {suite: blocks for suite, blocks in suites.items() if blocks}


@click.command("run")
@click.argument("suites", nargs=-1)
@_selection_options
@results_option
@click.option("--resume", metavar="RUN", default=None, help="Finish an interrupted run.")
@click.option("--dry-run", is_flag=True, help="Print the plan, and measure nothing.")
@click.option("--quiet", is_flag=True, help="Show no progress bar.")
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

    SUITES are files, names (collectives/all-reduce) or families (collectives). Ctrl-C keeps finished results;
    --resume measures the rest.
    """
    store = results or default_results()
    if resume is not None:
        _refuse_beside_resume(suites, resume)
        prepared = prepare_again(store, resume)
    elif suites:
        prepared = prepare(suites, say=warn, **options)
    else:
        raise UserError("no suite given", fix="paceline list suites")
    earlier = earlier_runs(results)
    if dry_run:
        click.echo(_shown(prepared, earlier, results, as_json, wide=wide))
        return
    if not as_json and not quiet:
        click.echo(describe_plan(prepared.plan, earlier, wide=wide), err=True)
    told: list[str] = []

    def tell(suite: str, record: Path) -> None:
        if not as_json:
            say_tables(read_record(record), wide=wide, only=suite)
            told.append(suite)  # one that could not be shown is shown at the end

    outcome = perform(
        prepared,
        store,
        say=warn,
        earlier=earlier,
        quiet=quiet or as_json,
        wait_s=wait_s,
        allow_concurrent=allow_concurrent,
        on_suite=tell,
    )
    report_outcome(outcome, store, as_json, prepared.warnings, wide=wide, told=told)
    sys.exit(exit_code(outcome))


SELECTING = (
    "seed",
    "launches",
    "budget_s",
    "one_by_one",
    "filters",
    "techniques",
    "user_files",
    "runner",
    "tier",
)


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


def say_failures(record: RunRecord) -> None:
    """Say each reason for which cases have no number once, on stderr."""
    for failure in grouped(record.measurements):
        click.echo(failure.text(), err=True)
        traced = next((m for m in failure.measurements if m.status == "crashed" and m.detail), None)
        if traced is not None:
            click.echo(f"  traceback: paceline show {traced.record_id}", err=True)


def say_tables(
    record: RunRecord, *, wide: bool = False, only: str | None = None, without: Collection[str] = ()
) -> None:
    """Print the tables of a record's suites, and why their points ended.

    Args:
        record: Of the run, which may not have ended.
        wide: Whether all columns are shown.
        only: Name of the one suite; None: all.
        without: Suites that are left out.
    """
    points = [p for p in points_of(record) if only in (None, p.suite) and p.suite not in without]
    for table in suite_tables(points, compare_points(points), wide=wide):
        click.echo(table.render(wide=wide))
    for line in stop_lines(record, {p.suite for p in points}):
        click.echo(line)


def report_outcome(
    outcome: Outcome,
    store: Path,
    as_json: bool,
    warnings: Sequence[str] = (),
    *,
    wide: bool = False,
    told: Collection[str] = (),
) -> None:
    """Print what a run came to: tables but those of suites that were told, failures, and where the record is."""
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
        click.echo(
            f"interrupted; {number_of(outcome.num_missing, 'result is', 'results are')} missing, the rest is kept"
        )
        click.echo(f"go on with: {resume_command(outcome.run_id, store)}")
        return
    record = read_record(outcome.path)
    say_tables(record, wide=wide, without=told)
    say_failures(record)
    counts = ", ".join(f"{n} {status}" for status, n in sorted(outcome.statuses.items()))
    click.echo(f"{counts} in {format_duration(outcome.measuring_s)}; record {outcome.path}")
