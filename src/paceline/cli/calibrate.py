"""``paceline calibrate``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from paceline.base.errors import EXIT_OK, EXIT_REGRESSION, UserError
from paceline.base.units import format_duration
from paceline.calibration.deciding import fake_deciding_figures, real_deciding_figures
from paceline.calibration.load_client import load_figures
from paceline.calibration.starts import start_figures
from paceline.calibration.timers import DEVICE_TIMERS, timer_figures
from paceline.calibration.trends import trend_figures
from paceline.calibration.trials import (
    Figure,
    bare_loop_figures,
    bare_script_figures,
    fake_figures,
    real_figures,
    torch_benchmark_figures,
    write_figures,
)
from paceline.cli.options import (
    json_option,
    machine_options,
    print_json,
    results_option,
    warn,
)
from paceline.drivers.machine.occupation import occupied
from paceline.report.terminal import laid_out, terminal_width
from paceline.spec import content
from paceline.spec.profile import load_runner
from paceline.workflows.stores import default_results

TRIALS = 4000
FAMILIES = ("serving", "trends")
TREND_TRIALS = 600
OTHERS: Mapping[str, Callable[..., list[Figure]]] = {
    "bare-loop": bare_loop_figures,
    "bare-script": bare_script_figures,
    "torch-benchmark": torch_benchmark_figures,
    "spawned": start_figures,
    **{timer: partial(timer_figures, timer) for timer in DEVICE_TIMERS},
}


@click.command("calibrate")
@click.option(
    "--runner",
    default=None,
    help="fake, or a runner with real ranks [default: fake; with --against: local-cpu, or local-cuda for its timers].",
)
@click.option(
    "--trials",
    type=click.IntRange(10),
    default=None,
    help="Comparisons on the fake device [default: 4000].",
)
@click.option(
    "--against",
    type=click.Choice(["itself", *OTHERS]),
    default="itself",
    show_default=True,
    help="On real ranks: a technique against itself, a loop or a training script without the harness, PyTorch's own "
    "timer, forked ranks against spawned ones; with CUDA Triton's do_bench or a replayed graph.",
)
@click.option(
    "--launches",
    type=click.IntRange(2),
    default=None,
    help="Launches of every point on real ranks [default: the suite's].",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where the figures go [default: results/calibration].",
)
@click.option(
    "--family",
    type=click.Choice(FAMILIES),
    default=None,
    help="serving: the load generator instead, against servers whose truth is known; three to four minutes. "
    "trends: what finds changes over nights, on simulated ones; two to three minutes.",
)
@click.option(
    "--until",
    type=click.Choice(["launches", "decided"]),
    default="launches",
    show_default=True,
    help="decided: try the rule that ends a run once it is decided; only for a technique against itself.",
)
@click.option("--quiet", is_flag=True, help="No progress bar.")
@machine_options
@results_option
@json_option
def calibrate(
    runner: str | None,
    trials: int | None,
    against: str,
    launches: int | None,
    output: Path | None,
    family: str | None,
    until: str,
    quiet: bool,
    wait_s: float,
    allow_concurrent: bool,
    results: Path | None,
    as_json: bool,
) -> None:
    """Measure the harness's own false alarms, power and overhead.

    The fake device tries the statistics alone, since its noise is known. With --runner local-cpu real ranks are
    compared with themselves. Exit code 1 says that a promised figure was not reached; it is printed.
    """
    store = results or default_results()
    silent = quiet or as_json
    if family is not None and (runner or trials or launches or against != "itself"):
        raise UserError(
            "--family has its own servers, calls and runs", fix=f"paceline calibrate --family {family}"
        )
    runner = runner or ("local-cpu" if family else _usual_runner(against))
    fake = runner == "fake" and against == "itself"
    decide = until == "decided"
    if decide and (against != "itself" or family is not None or launches is not None):
        raise UserError(
            "--until decided has launches of its own, and compares a technique with itself",
            fix=f"paceline calibrate --until decided --runner {runner}",
        )
    if fake and launches is not None:
        raise UserError(
            "the trials on the fake device have launches of their own", fix="--trials N, or --runner RUNNER"
        )
    if not fake and trials is not None:
        raise UserError("on real ranks the suite names the trials", fix="--launches N, or --runner fake")
    if family == "trends":
        told = trend_figures(TREND_TRIALS, lambda part: None if silent else click.echo(part, err=True))
        _publish("trends", told, output, as_json=as_json)
        return
    profile = load_runner(content.find_runner(runner)).resolved()
    with occupied(profile, wait_s=wait_s, allow_concurrent=allow_concurrent, say=warn):
        if family is not None:
            name, figures = family, load_figures(lambda part: None if silent else click.echo(part, err=True))
        elif fake:
            with tempfile.TemporaryDirectory() as folder:
                make = fake_deciding_figures if decide else fake_figures
                figures = make(trials or TRIALS, Path(folder), quiet=silent)
            name = "fake"
        elif decide:
            figures = real_deciding_figures(runner, store, quiet=silent)
            name = runner
        elif against == "itself":
            figures = real_figures(runner, store, launches=launches, quiet=silent)
            name = runner
        else:
            figures = OTHERS[against](runner, store, launches=launches, quiet=silent)
            name = f"{runner}-{against}"
    if decide:
        name += "-until-decided"
    _publish(name, figures, output, as_json=as_json)


def _publish(name: str, figures: Sequence[Figure], output: Path | None, *, as_json: bool) -> None:
    """Write the figures for the site, show them, and end with what was reached."""
    target = output or (content.checkout_root() or Path.cwd()) / "results" / "calibration"
    path = write_figures(target, name, figures)
    if as_json:
        print_json({"figures": [asdict(f) for f in figures], "file": str(path)})
    else:
        click.echo(render(figures))
        click.echo(f"written to {path}")
    sys.exit(EXIT_OK if all(f.reached for f in figures) else EXIT_REGRESSION)


def _usual_runner(against: str) -> str:
    if against == "itself":
        return "fake"
    return "local-cuda" if against in DEVICE_TIMERS else "local-cpu"


def render(figures: Sequence[Figure]) -> str:
    """Return the figures as a table, and below it what was not reached."""
    rows = [
        [
            f.name,
            _number(f, f.value),
            f"[{_number(f, f.low)}, {_number(f, f.high)}]" if f.low is not None else "–",
            str(f.trials),
            _number(f, f.limit),
            "yes" if f.reached else "NO",
            f.what,
        ]
        for f in figures
    ]
    headers = ["figure", "value", "interval", "n", "promised", "reached", "what"]
    text, _ = laid_out(headers, rows, width=terminal_width())
    missed = [f.shortfall for f in figures if f.shortfall]
    return text + "".join(f"\nnot reached: {line}" for line in missed)


def _number(figure: Figure, value: float | None) -> str:
    if value is None:
        return "–"
    if figure.unit == "s":
        return format_duration(value)
    if figure.unit == "1/s":
        return f"{value:.4g}/s"
    return f"{value:.2%}" if figure.hits is not None else f"{value:.3f}"
