"""``paceline kernel``: candidates in other projects' layouts against their reference."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from paceline.base.units import parse_duration
from paceline.cli.measuring.run import report_outcome
from paceline.cli.options import (
    json_option,
    launch_options,
    machine_options,
    margin_option,
    results_option,
    warn,
    wide_option,
)
from paceline.families.kernels.core.planning.arithmetic import ITEM_BYTES
from paceline.spec.suites.launches import Launches
from paceline.workflows.foreign_kernels import read_candidates, suite_of, write_all
from paceline.workflows.running import earlier_runs, exit_code, perform, prepare
from paceline.workflows.stores import default_results

FILE = click.Path(path_type=Path)


def _timeout(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


@click.command("kernel")
@click.argument("reference", type=FILE)
@click.argument("solutions", metavar="SOLUTION…", nargs=-1, required=True, type=FILE)
@click.option("--workloads", type=FILE, default=None, help="Workloads of flashinfer-bench, as lines of JSON.")
@click.option(
    "--dtype",
    type=click.Choice(tuple(ITEM_BYTES)),
    default="float32",
    show_default=True,
    help="Type of floating-point inputs and weights.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Threads of the CPU that a call may use.",
)
@click.option(
    "--timeout",
    default="120s",
    show_default=True,
    callback=_timeout,
    help="Longer proofs or launches are killed.",
)
@margin_option("A change inside this share counts as none [default: that of latency].")
@launch_options
@click.option("--runner", default="local-cpu", show_default=True, help="Runner profile.")
@click.option("--quiet", is_flag=True, help="Show no progress bar.")
@results_option
@machine_options
@wide_option
@json_option
def kernel(
    reference: Path,
    solutions: tuple[Path, ...],
    workloads: Path | None,
    dtype: str,
    threads: int,
    timeout: str,
    margin: float | None,
    launches: Launches | None,
    budget_s: float | None,
    runner: str,
    quiet: bool,
    results: Path | None,
    wait_s: float,
    allow_concurrent: bool,
    wide: bool,
    as_json: bool,
) -> None:
    """Judge kernels of others by their REFERENCE, and time them in turn with it.

    REFERENCE is a file of KernelBench (class Model, get_inputs, get_init_inputs) or a definition of flashinfer-bench
    (.json); each SOLUTION has a class ModelNew, or is a solution of flashinfer-bench (.json, or .py with run). They
    compute in a sandbox where bubblewrap is installed, else behind the fences of all kernels. Exit code 0: all are
    right; 2: a file is not in its layout; 3: one crashed or hung; 5: one is wrong, or is refused.
    """
    compared = read_candidates(reference, list(dict.fromkeys(solutions)), workloads)
    suite = suite_of(compared, dtype=dtype, threads=threads, margin=margin, timeout=timeout)
    store = results or default_results()
    path, files = write_all(store, suite, compared)
    prepared = prepare(
        [str(path)],
        tier="standard",
        runner=runner,
        user_files=files,
        launches=launches,
        budget_s=budget_s,
        say=warn,
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
    if not as_json:
        click.echo(f"suite {suite['suite']}: {path}")
    sys.exit(exit_code(outcome))
