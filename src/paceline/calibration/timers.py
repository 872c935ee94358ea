"""Agreement of kernel times with what other timers of accelerators say: Triton's do_bench, and replayed graphs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paceline.analysis.points import points_of
from paceline.base.errors import PrerequisiteError, UserError
from paceline.calibration.trials import Figure, kernel_name, ratio_figure, run_suite
from paceline.drivers.capabilities import accelerator
from paceline.records.store.folder import RunRecord
from paceline.spec import content
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite
from paceline.stats.estimates import Launches, compare_ratio, median

DEVICE_TIMERS: Mapping[str, str] = {"do-bench": "do_bench_s", "graph-replay": "graph_latency"}
"""The metric of each timer; its suite is named after it."""
RELATIVE = 0.02
ABSOLUTE_S = 1e-6
"""Two timers agree within either."""


def timer_figures(
    timer: str, runner: str, store: Path, *, launches: int | None = None, quiet: bool = False
) -> list[Figure]:
    """Compare the harness's time of kernels on an NVIDIA GPU with another timer's.

    Raises:
        UserError: The runner's device is another.
        PrerequisiteError: There is no such GPU here.
    """
    device = load_runner(content.find_runner(runner)).model.device
    if device != "cuda":
        raise UserError(
            f"--against={timer} needs cuda; the runner {runner} measures on {device}",
            fix="--runner=local-cuda",
        )
    seen = accelerator()
    if seen != "cuda":
        raise PrerequisiteError(
            f"--against={timer} needs cuda; torch sees {seen or 'no accelerator'} here",
            fix=f"on a machine with an NVIDIA GPU: paceline calibrate --against {timer}",
        )
    suite = load_suite(content.find_suite(f"calibration/{timer}"))
    record = run_suite(suite, runner, store, launches=launches, quiet=quiet)
    return agreement_figures(record, timer)


def agreement_figures(record: RunRecord, timer: str) -> list[Figure]:
    """Return the ratio of both times for every kernel, and how many kernels both timed."""
    points = points_of(record)
    figures = []
    for point in points:
        own = point.cells.get(("torch-eager", "latency"))
        other = point.cells.get(("torch-eager", DEVICE_TIMERS[timer]))
        if own is None or other is None:
            continue
        figures.append(
            ratio_figure(
                record,
                compare_ratio(own.launches, other.launches),
                name=kernel_name(point),
                what=f"median by the harness over that by {timer}, in the same launches",
                limit=1 + RELATIVE,
                reached=agree(own.launches, other.launches),
                details={"metric": other.metric, "seconds": median(list(own.values.values()))},
            )
        )
    count = Figure(
        name="kernels timed by both",
        what=f"of {len(points)}; the others failed, or {timer} had no time for them",
        value=len(figures),
        low=None,
        high=None,
        unit="ratio",
        limit=len(points),
        reached=len(figures) == len(points) > 0,
        trials=len(points),
        details={"run_id": record.run.run_id, "host_class": record.run.host_class},
    )
    return [*figures, count]


def agree(own: Launches, other: Launches) -> bool:
    """Tell whether two timers agree: within two per cent, or within a microsecond."""
    ratio = compare_ratio(own, other).value
    apart_s = abs(median(list(own.values.values())) - median(list(other.values.values())))
    return abs(ratio - 1) <= RELATIVE or apart_s <= ABSOLUTE_S
