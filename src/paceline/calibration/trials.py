"""The harness measured by itself: how often it claims a difference that is not there, and misses one that is.

Every trial is one point of a calibration suite, judged as a report of its own at the nominal 5 %, so that the
correction for many comparisons cannot hide false alarms.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from paceline import __version__
from paceline.analysis.compare import compare_points
from paceline.analysis.points import Point, points_of
from paceline.base.errors import InfrastructureError
from paceline.drivers.measure import measure
from paceline.drivers.progress import RunProgress
from paceline.records.identity import utc
from paceline.records.origin.provenance import code_state
from paceline.records.store.folder import RunRecord, read_record
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite
from paceline.stats.estimates import Estimate, Launches, compare_ratio, median, wilson

FAKE_FALSE_ALARMS = 0.06
REAL_FALSE_ALARMS = 0.08
POWER = 0.90
BARE_LOOP_RATIO = 1.03
TIMER_AGREEMENT = 1.03
OVERHEAD_S = 0.05
"""What the harness promises; docs/protocol.md gives the reasons."""


HIDDEN = ("op", "threads", "reference_timer", "dtype")
"""Parameters that a figure's name leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured property of the harness beside what is promised."""

    name: str
    what: str
    value: float
    low: float | None
    high: float | None
    unit: Literal["ratio", "s", "1/s"]
    limit: float
    reached: bool
    trials: int
    hits: int | None = None
    """Trials that count towards the value, for shares."""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shortfall(self) -> str | None:
        """Say what was not reached, or None."""
        if self.reached:
            return None
        return f"{self.name}: {self.value:.4g} against {self.limit:.4g} ({self.what})"


def shorten(suite: Suite, points: int) -> Suite:
    """Return the suite with its ``trial`` axis set to a number of points."""
    matrix = {**suite.model.matrix, "trial": list(range(points))}
    return replace(suite, model=suite.model.model_copy(update={"matrix": matrix}))


def run_suite(
    suite: Suite,
    runner: str,
    store: Path,
    *,
    launches: int | None = None,
    seed: int | None = None,
    quiet: bool = False,
) -> RunRecord:
    """Run one calibration suite into a store and return its record.

    Args:
        suite: What is run.
        runner: The name of its profile.
        store: Where its record goes.
        launches: Number of launches, if not the suite's.
        seed: Makes the draws of a virtual device the same in every run.
        quiet: Show no progress.

    Raises:
        InfrastructureError: It was interrupted.
    """
    profile = load_runner(content.find_runner(runner))
    plan = make_plan([suite], profile, Selection(launches=launches, seed=seed))
    with RunProgress(plan, quiet=quiet) as progress:
        outcome = measure(plan, [suite], store, reason="calibrate", on_event=progress.event)
    if outcome.path is None:
        raise InfrastructureError("the calibration was interrupted; run it again")
    return read_record(outcome.path)


def verdicts(points: Sequence[Point]) -> Counter[str]:
    """Count the verdicts of all points, each compared alone."""
    counts: Counter[str] = Counter()
    for point in points:
        # Each trial is an experiment of its own: corrected over all of them hardly any would be an alarm.
        found = compare_points([replace(point, together={})])
        counts.update(c.verdict.name for c in found)
        if not found:
            counts["no comparison"] += 1
    return counts


def share(
    name: str, what: str, record: RunRecord, counted: Sequence[str], limit: float, *, at_most: bool
) -> Figure:
    """Return how often the points of a run got one of the counted verdicts."""
    counts = verdicts(points_of(record))
    trials = sum(n for verdict, n in counts.items() if verdict != "no comparison")
    hits = sum(counts[v] for v in counted)
    low, high = wilson(hits, trials)
    value = hits / trials if trials else float("nan")
    return Figure(
        name=name,
        what=what,
        value=value,
        low=low,
        high=high,
        unit="ratio",
        limit=limit,
        reached=value <= limit if at_most else value >= limit,
        trials=trials,
        hits=hits,
        details={
            "verdicts": dict(sorted(counts.items())),
            "run_id": record.run.run_id,
            "host_class": record.run.host_class,
        },
    )


def fake_figures(trials: int, store: Path, *, seed: int | None = None, quiet: bool = False) -> list[Figure]:
    """Measure false alarms and power on the fake device, whose noise and drift are known."""
    same = shorten(calibration_suite("same-work"), trials)
    slower = shorten(calibration_suite("slower-by-3-percent"), trials)
    figures = []
    for suite, runner, name, what in (
        (same, "fake", "false alarms", "same work, 1 % noise within and between launches"),
        (same, "fake-drift", "false alarms under drift", "same work, 20 % drift over and within launches"),
        (slower, "fake", "power", "3 % more work found, 1 % launch noise, 5 launches a side"),
    ):
        record = run_suite(suite, runner, store, seed=seed, quiet=quiet)
        power = suite is slower
        counted = ("slower",) if power else ("faster", "slower")
        limit = POWER if power else FAKE_FALSE_ALARMS
        figures.append(share(name, what, record, counted, limit, at_most=not power))
    return figures


def real_figures(
    runner: str, store: Path, *, launches: int | None = None, quiet: bool = False
) -> list[Figure]:
    """Measure false alarms of a technique against itself on a real runner."""
    record = run_suite(calibration_suite("same-technique"), runner, store, launches=launches, quiet=quiet)
    what = f"native all-reduce against itself on {runner}"
    return [
        share(
            f"false alarms on {runner}",
            what,
            record,
            ("faster", "slower"),
            REAL_FALSE_ALARMS,
            at_most=True,
        )
    ]


def bare_loop_figures(
    runner: str, store: Path, *, launches: int | None = None, quiet: bool = False
) -> list[Figure]:
    """Compare the harness's time of an all-reduce with a bare loop's, and measure its cost around a case."""
    record = run_suite(calibration_suite("bare-loop"), runner, store, launches=launches, quiet=quiet)
    figures: list[Figure] = []
    for point in points_of(record):
        timed, bare = point.cells.get(("native", "latency")), point.cells.get(("native", "bare_loop_s"))
        if timed is None or bare is None:
            continue
        effect = compare_ratio(timed.launches, bare.launches)
        size = int(point.params["size_bytes"])
        figures.append(
            ratio_figure(
                record,
                effect,
                name=f"harness / bare loop at {size} B",
                what="native all-reduce inside the harness over the same in a bare loop, interleaved",
                limit=BARE_LOOP_RATIO,
                reached=within(effect, BARE_LOOP_RATIO),
                details={"method": effect.method},
            )
        )
    overhead = _fixed_overhead(points_of(record))
    if overhead is not None:
        figures.append(overhead)
    return figures


def bare_script_figures(
    runner: str, store: Path, *, launches: int | None = None, quiet: bool = False
) -> list[Figure]:
    """Compare the harness's training loop with a script of PyTorch alone on the same model and batches, in turn."""
    record = run_suite(calibration_suite("bare-script"), runner, store, launches=launches, quiet=quiet)
    figures: list[Figure] = []
    for point in points_of(record):
        for label in point.labels:
            timed, bare = (
                point.cells[(label, "time_per_token")],
                point.cells.get((label, "bare_time_per_token")),
            )
            if bare is None:
                continue
            effect = compare_ratio(timed.launches, bare.launches)
            figures.append(
                ratio_figure(
                    record,
                    effect,
                    name=f"{label} / bare script",
                    what="a token's time in the harness's loop over that in a script with PyTorch alone, in turn",
                    limit=BARE_LOOP_RATIO,
                    reached=within(effect, BARE_LOOP_RATIO),
                    details={"method": effect.method},
                )
            )
    return figures


def torch_benchmark_figures(
    runner: str, store: Path, *, launches: int | None = None, quiet: bool = False
) -> list[Figure]:
    """Compare the harness's time of kernels with PyTorch's own timer, interleaved, and what each needed for it."""
    record = run_suite(calibration_suite("torch-benchmark"), runner, store, launches=launches, quiet=quiet)
    figures: list[Figure] = []
    spent: list[Mapping[str, Any]] = []
    for point in points_of(record):
        timed = point.cells.get(("torch-eager", "latency"))
        theirs = point.cells.get(("torch-eager", "torch_benchmark_s"))
        if timed is None or theirs is None:
            continue
        effect = compare_ratio(timed.launches, theirs.launches)
        costs = [(m.accounting or {}).get("seconds_to_one_percent") for m in timed.measurements]
        spent += [c for c in costs if c is not None]
        figures.append(
            ratio_figure(
                record,
                effect,
                name=kernel_name(point),
                what="median by the harness over median by torch.utils.benchmark, interleaved in one process",
                limit=TIMER_AGREEMENT,
                reached=1 / TIMER_AGREEMENT <= effect.value <= TIMER_AGREEMENT,
                details={"seconds_to_one_percent": costs},
            )
        )
    if spent:
        figures.append(_time_to_interval(spent))
    return figures


def within(effect: Estimate, limit: float) -> bool:
    """Return whether a figure is at most its limit; that its interval reaches down to the limit is not enough."""
    return effect.value <= limit


def kernel_name(point: Point) -> str:
    """Name a kernel by its operation and sizes."""
    size = ", ".join(f"{k} {v}" for k, v in point.params.items() if k not in HIDDEN)
    return f"{point.params['op']} ({size})"


def ratio_figure(
    record: RunRecord,
    effect: Estimate,
    *,
    name: str,
    what: str,
    limit: float,
    reached: bool,
    details: Mapping[str, Any],
) -> Figure:
    """Return a ratio of two times of one run as a figure."""
    return Figure(
        name=name,
        what=what,
        value=effect.value,
        low=effect.low,
        high=effect.high,
        unit="ratio",
        limit=limit,
        reached=reached,
        trials=effect.num_launches,
        details={**details, "run_id": record.run.run_id, "host_class": record.run.host_class},
    )


def _time_to_interval(spent: Sequence[Mapping[str, Any]]) -> Figure:
    """Compare what both timers needed for a 1 % interval where either got there; the other is charged all it spent.

    Verification is in the harness's time; PyTorch's timer verifies nothing.
    """
    decided = [s for s in spent if s["paceline"]["reached"] or s["torch"]["reached"]]
    own, theirs = (sum(float(s[side]["seconds"]) for s in decided) for side in ("paceline", "torch"))
    hits = {side: sum(bool(s[side]["reached"]) for s in spent) for side in ("paceline", "torch")}
    value = own / theirs if theirs > 0 else math.inf
    return Figure(
        name="time to a 1 % interval",
        what="seconds of the harness over those of torch.utils.benchmark, wherever either got there",
        value=value,
        low=None,
        high=None,
        unit="ratio",
        limit=1.0,
        reached=value <= 1.0,
        trials=len(decided),
        details={"reached": hits, "of": len(spent)},
    )


def _fixed_overhead(points: Sequence[Point]) -> Figure | None:
    """Return the seconds of a case that do not grow with its size or samples, at the smallest size."""
    smallest = min(points, key=lambda p: int(p.params["size_bytes"]), default=None)
    cell = smallest.cells.get(("native", "latency")) if smallest is not None else None
    if cell is None:
        return None
    facts = [(m.accounting or {}).get("harness") for m in cell.measurements]
    values = {
        m.launch: float(f["fixed_s"]) for m, f in zip(cell.measurements, facts, strict=True) if f is not None
    }
    side = Launches(values=values)
    ordered = sorted(side.values.values())
    return Figure(
        name="fixed overhead of a case",
        what="inputs, untimed passes and bookkeeping of one case in one launch at the smallest size, after its gate",
        value=median(ordered),
        low=ordered[0],
        high=ordered[-1],
        unit="s",
        limit=OVERHEAD_S,
        reached=median(ordered) <= OVERHEAD_S,
        trials=len(ordered),
        details={
            "interval": "range over launches",
            "gate_s": [float(f["gate_s"]) for f in facts if f is not None],
            "gate": "paid once per technique, operation, dtype and launch",
        },
    )


def write_figures(folder: Path, name: str, figures: Sequence[Figure]) -> Path:
    """Write figures as JSON for the site; an earlier file of the same name is replaced."""
    hosts = {str(f.details["host_class"]) for f in figures if f.details.get("host_class")}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    document = {
        "made": utc(),
        "tool_version": __version__,
        "code": {k: v for k, v in code_state().items() if k in ("commit", "dirty")},
        "host_class": ", ".join(sorted(hosts)) or None,
        "figures": [asdict(f) for f in figures],
        "not_reached": [f.shortfall for f in figures if f.shortfall],
    }
    path.write_text(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    return path


def calibration_suite(name: str) -> Suite:
    return load_suite(content.find_suite(f"calibration/{name}"))
