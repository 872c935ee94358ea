"""``paceline job``: folders for machines that have only torch and numpy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from paceline.cli.measuring.run import _selection_options, describe_plan, say_failures
from paceline.cli.options import renamed_option, results_option, warn
from paceline.drivers.execute import collect_job
from paceline.drivers.job import build_job, read_job
from paceline.drivers.measure import make_facts
from paceline.records.store.folder import read_record
from paceline.records.store.storage import check_writable
from paceline.workflows.running import exit_code, prepare
from paceline.workflows.stores import default_results


@click.group("job")
def job() -> None:
    """Make a job folder for another machine, or collect its results."""


@job.command("export")
@click.argument("suites", nargs=-1, required=True)
@_selection_options
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Folder to make.")
def export(suites: tuple[str, ...], output: Path, **options: Any) -> None:
    """Make a self-contained folder that measures SUITES on any machine with torch and numpy.

    Copy the folder there, run `sh run.sh` in it, copy it back, and run `paceline job collect FOLDER`.
    """
    prepared = prepare(suites, say=warn, elsewhere=True, **options)
    build_job(output, prepared.plan, prepared.suites, make_facts(prepared.plan, prepared.suites))
    click.echo(describe_plan(prepared.plan))
    click.echo(f"made {output}; on the machine to measure: sh {output}/run.sh")


@job.command("collect")
@click.argument("folder", type=click.Path(path_type=Path))
@renamed_option("--allow-partial", is_flag=True, help="Seal the record although results are missing.")
@results_option
def collect(folder: Path, allow_partial: bool, results: Path | None) -> None:
    """Turn the events in a job FOLDER that was run elsewhere into a record."""
    store = results or default_results()
    check_writable(store)
    plan, facts = read_job(folder)
    outcome = collect_job(folder, plan, facts, store, allow_partial=allow_partial)
    if outcome.path is not None:
        say_failures(read_record(outcome.path))
    counts = ", ".join(f"{n} {status}" for status, n in sorted(outcome.statuses.items()))
    missing = f", {outcome.num_missing} missing" if outcome.num_missing else ""
    click.echo(f"{counts}{missing}; record {outcome.path}")
    sys.exit(exit_code(outcome))
