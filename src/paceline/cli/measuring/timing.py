"""``paceline time``: commands against each other, without a suite file."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

import click

from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_OK
from paceline.base.units import format_duration
from paceline.cli.measuring.run import report_outcome
from paceline.cli.options import (
    json_option,
    launch_options,
    machine_options,
    margin_option,
    results_option,
    together,
    warn,
    wide_option,
)
from paceline.drivers.execute import Outcome
from paceline.records.store.folder import read_record
from paceline.spec import content
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.launches import Launches
from paceline.workflows.programs.commands import (
    Asked,
    missing,
    require_programs,
    shell_starts,
    suite_of,
    unseen_threads,
    write_suite,
)
from paceline.workflows.running import earlier_runs, exit_code, perform, prepare
from paceline.workflows.stores import default_results

_program_options = together(
    margin_option("A change inside this share counts as none [default: 0.05]."),
    click.option("--timeout", default="60s", show_default=True, help="Longer runs are killed."),
    click.option(
        "--warmup",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Untimed runs in each launch, beside the first of all.",
    ),
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="TEXT",
        help="What {input} stands for; a point for each.",
    ),
    click.option(
        "--metric",
        "metrics",
        multiple=True,
        metavar="NAME=WHERE",
        help="What the commands report: tokens_per_s=PATTERN, loss=json:KEY, or loss=json:KEY@FILE.",
    ),
    click.option(
        "--check",
        default="",
        metavar="COMMAND",
        help="Judges every run by its exit status; the run's output is its input.",
    ),
    click.option("--build", default="", metavar="COMMAND", help="Called once before the first run."),
    click.option(
        "--torchrun",
        type=click.IntRange(min=0),
        default=0,
        metavar="N",
        help="Start N processes of each command, which begins with its script.",
    ),
    click.option("--folder", default="", metavar="DIR", help="Where the commands run [default: here]."),
    click.option(
        "--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the commands."
    ),
    click.option("--shell", is_flag=True, help="Hand each command to /bin/sh as a whole."),
    click.option(
        "--name", "names", multiple=True, metavar="NAME", help="Names of the commands, in their order."
    ),
)
"""What says how the commands are run and judged."""


@click.command("time")
@click.argument("commands", nargs=-1, required=True)
@_program_options
@launch_options
@click.option("--runner", default="local-cpu", show_default=True, help="Runner profile.")
@click.option("--quiet", is_flag=True, help="Show no progress bar.")
@results_option
@machine_options
@wide_option
@json_option
def time_command(
    commands: tuple[str, ...],
    launches: Launches | None,
    budget_s: float | None,
    runner: str,
    results: Path | None,
    quiet: bool,
    wait_s: float,
    allow_concurrent: bool,
    wide: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Time any commands against each other, without a suite file.

    Each of COMMANDS is one quoted word, such as 'python a.py'; the first is the baseline. They run in turn, each time
    as new processes, until every comparison is decided. Time, processor time and memory come from the kernel. The suite
    that stands for them is kept in the store, and the record as of any run.
    """
    asked = Asked(commands=commands, **options)
    suite = suite_of(asked)
    if load_runner(content.find_runner(runner)).model.driver == "local":
        require_programs(asked)
    for name in unseen_threads(asked, os.environ):
        warn(f"the commands do not see this shell's {name}; --env={name}={os.environ[name]} hands it on")
    store = results or default_results()
    path = write_suite(store, suite)
    prepared = prepare(
        [str(path)], tier="standard", runner=runner, launches=launches, budget_s=budget_s, say=warn
    )
    outcome = perform(
        prepared,
        store,
        say=warn,
        earlier=earlier_runs(results),
        quiet=quiet or as_json,
        wait_s=wait_s,
        allow_concurrent=allow_concurrent,
    )
    report_outcome(outcome, store, as_json, prepared.warnings, wide=wide)
    sys.exit(_told(outcome, f"suite {suite['suite']}: {path}", as_json=as_json) or exit_code(outcome))


def _told(outcome: Outcome, where: str, *, as_json: bool) -> int:
    """Say what commands did not report, what the shell costs, and where the suite is.

    Returns:
        The exit code, if what was reported decides it.
    """
    if outcome.path is None:
        return EXIT_OK
    record = read_record(outcome.path)
    absent = missing(record)
    for line in absent:
        click.echo(line, err=True)
    if starts := shell_starts(record):
        share = format_duration(median(starts))
        click.echo(f"starting /bin/sh takes {share}, which is part of every time", err=True)
    if not as_json:
        click.echo(where)
    return EXIT_INFRASTRUCTURE if absent and exit_code(outcome) == EXIT_OK else EXIT_OK
