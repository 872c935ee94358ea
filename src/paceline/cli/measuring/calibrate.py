"""``paceline calibrate``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import click

from paceline.base.errors import EXIT_OK, EXIT_REGRESSION, UserError
from paceline.base.units import format_duration, parse_duration
from paceline.calibration.deciding import fake_deciding_figures, real_deciding_figures
from paceline.calibration.grading import grading_figures
from paceline.calibration.level_tables import level_table
from paceline.calibration.levels import SUITES as LEVEL_SUITES
from paceline.calibration.levels import Design, level_figures
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
from paceline.report.tables.terminal import laid_out, terminal_width
from paceline.spec import content
from paceline.spec.profiles.profile import load_runner
from paceline.workflows.stores import default_results

TRIALS = 4000
FAMILIES = ("serving", "trends", "reasoning")
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
    help="With what real ranks are compared: the technique itself, a loop or a training script without the harness, "
    "PyTorch's own timer, or spawned ranks; with CUDA also Triton's do_bench or a replayed graph.",
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
    help="Folder of the figures [default: results/calibration].",
)
@click.option(
    "--family",
    type=click.Choice(FAMILIES),
    default=None,
    help="Calibrate another part instead. serving: the load generator, against servers with known timings; three to "
    "four minutes. trends: the detection of changes over nights, on simulated nights; two to three minutes. "
    "reasoning: the reader and grader of answers, on answers with a person's verdict; one minute.",
)
@click.option(
    "--until",
    type=click.Choice(["launches", "decided"]),
    default="launches",
    show_default=True,
    help="decided: calibrate the rule that stops once comparisons are decided; only with --against itself.",
)
@click.option(
    "--levels",
    is_flag=False,
    flag_value=",".join(LEVEL_SUITES),
    default=None,
    metavar="[SUITES]",
    help="Measure variance and cost of launches, instances and rounds, and compute the best numbers of each; SUITES "
    f"are separated by commas [default: {','.join(LEVEL_SUITES)}].",
)
@click.option(
    "--within",
    default=None,
    metavar="DURATION",
    help="With --levels: time per point for which to compute the best numbers [default: that of the suite's numbers].",
)
@click.option(
    "--instances",
    type=click.IntRange(2),
    default=None,
    help="With --levels: instances in each launch [default: 4].",
)
@click.option(
    "--rounds",
    type=click.IntRange(4),
    default=None,
    help="With --levels: rounds in each instance [default: 40].",
)
@click.option("--quiet", is_flag=True, help="Show no progress bar.")
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
    levels: str | None,
    within: str | None,
    instances: int | None,
    rounds: int | None,
    quiet: bool,
    wait_s: float,
    allow_concurrent: bool,
    results: Path | None,
    as_json: bool,
) -> None:
    """Measure the harness's own false alarms, power and overhead.

    The fake device tests the statistics alone, because its noise is known. With --runner local-cpu, real ranks are
    compared with themselves. --levels measures how much variance launches, instances and rounds contribute to a suite's
    comparisons, and computes which numbers of them give the narrowest interval. Exit code 1 means that a figure missed
    its promise; the output names it.
    """
    silent = quiet or as_json
    asked = Asked(
        runner=runner or ("local-cpu" if family or levels else _usual_runner(against)),
        trials=trials,
        against=against,
        launches=launches,
        family=family,
        decide=until == "decided",
        levels=levels,
        within=within,
        instances=instances,
        rounds=rounds,
    )
    _refuse_mixtures(asked, runner_named=runner is not None)
    if family in ("trends", "reasoning"):  # nothing is timed: they need no machine
        name, figures = family, _untimed(family, silent=silent)
    else:
        profile = load_runner(content.find_runner(asked.runner)).resolved()
        with occupied(profile, wait_s=wait_s, allow_concurrent=allow_concurrent, say=warn):
            name, figures = _measured(asked, results or default_results(), silent=silent)
    target = output or (content.checkout_root() or Path.cwd()) / "results" / "calibration"
    path = write_figures(target, name, figures)
    if as_json:
        print_json({"figures": [asdict(f) for f in figures], "file": str(path)})
    else:
        click.echo(level_table(figures, terminal_width()) if levels else render(figures))
        click.echo(f"written to {path}")
    sys.exit(EXIT_OK if all(f.reached for f in figures) else EXIT_REGRESSION)


def _untimed(family: str, *, silent: bool) -> list[Figure]:
    """Return the figures of trends or of grading."""

    def say(part: str) -> None:
        if not silent:
            click.echo(part, err=True)

    return trend_figures(TREND_TRIALS, say) if family == "trends" else grading_figures(say)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asked to be measured; ``None`` where an option was not given."""

    runner: str
    trials: int | None
    against: str
    launches: int | None
    family: str | None
    decide: bool
    levels: str | None
    within: str | None
    instances: int | None
    rounds: int | None

    @property
    def fake(self) -> bool:
        """Whether comparisons on the fake device are tried."""
        return self.runner == "fake" and self.against == "itself" and self.levels is None


def _refuse_mixtures(asked: Asked, *, runner_named: bool) -> None:
    """Refuse options that mean nothing together.

    Raises:
        UserError: Two of them do.
    """
    trials, launches, family = asked.trials, asked.launches, asked.family
    if asked.levels is not None and (trials or family or asked.decide or asked.against != "itself"):
        raise UserError(
            "--levels measures levels of replication, and compares nothing with a truth or with another tool",
            fix=f"paceline calibrate --levels {asked.levels}",
        )
    if asked.levels is None and (asked.within or asked.instances or asked.rounds):
        raise UserError(
            "--within, --instances and --rounds are about levels of replication",
            fix="paceline calibrate --levels",
        )
    if family is not None and (runner_named or trials or launches or asked.against != "itself"):
        raise UserError(
            "--family has its own servers, calls and runs", fix=f"paceline calibrate --family {family}"
        )
    if asked.decide and (asked.against != "itself" or family is not None or launches is not None):
        raise UserError(
            "--until decided has launches of its own, and compares a technique with itself",
            fix=f"paceline calibrate --until decided --runner {asked.runner}",
        )
    if asked.fake and launches is not None:
        raise UserError(
            "the trials on the fake device have launches of their own", fix="--trials N, or --runner RUNNER"
        )
    if not asked.fake and trials is not None:
        raise UserError("on real ranks the suite names the trials", fix="--launches N, or --runner fake")


def _measured(asked: Asked, store: Path, *, silent: bool) -> tuple[str, list[Figure]]:
    """Measure, and return the name of the file of figures with them."""
    runner = asked.runner
    if asked.family is not None:
        return asked.family, load_figures(lambda part: None if silent else click.echo(part, err=True))
    if asked.levels is not None:
        given = {"launches": asked.launches, "instances": asked.instances, "rounds": asked.rounds}
        design = Design(**{k: v for k, v in given.items() if v is not None})
        suites, within_s = asked.levels.split(","), _seconds(asked.within)
        name = load_runner(content.find_runner(runner)).name
        found = level_figures(suites, runner, store, design=design, within_s=within_s, quiet=silent)
        return f"{name}-levels", found
    ending = "-until-decided" if asked.decide else ""
    if asked.fake:
        make = fake_deciding_figures if asked.decide else fake_figures
        with tempfile.TemporaryDirectory() as folder:
            return f"fake{ending}", make(asked.trials or TRIALS, Path(folder), quiet=silent)
    if asked.decide:
        return f"{runner}{ending}", real_deciding_figures(runner, store, quiet=silent)
    if asked.against == "itself":
        return runner, real_figures(runner, store, launches=asked.launches, quiet=silent)
    other = OTHERS[asked.against](runner, store, launches=asked.launches, quiet=silent)
    return f"{runner}-{asked.against}", other


def _seconds(within: str | None) -> float | None:
    """Read a duration of the command line.

    Raises:
        UserError: It is none.
    """
    try:
        return None if within is None else parse_duration(within)
    except ValueError as error:
        raise UserError(str(error), where="--within", expected="a duration such as 30s") from error


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
