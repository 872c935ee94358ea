"""Where the variance of a suite's comparisons is: launches, instances within them, or rounds within those."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from paceline.analysis.points import Cell, Point, points_of
from paceline.base.counting import number_of
from paceline.base.errors import InfrastructureError, UserErrors
from paceline.calibration.starts import told
from paceline.calibration.trials import Figure, run_suite
from paceline.records.format.record import Measurement
from paceline.records.store.folder import RunRecord
from paceline.spec import content
from paceline.spec.suites.grammar import Protocol
from paceline.spec.suites.instances import instance_errors
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite
from paceline.stats.levels import (
    Components,
    Costs,
    Numbers,
    best,
    components,
    cost_s,
    half_width,
    ideal,
    interval,
    resampled,
)
from paceline.worker.timing.interleaved import Limits, relative_half_width

SUITES = ("tour/all-reduce", "tour/gemm")
LAUNCHES, INSTANCES, ROUNDS = 8, 4, 40
STRETCHES = 4
LEAST_LAUNCHES = 2
METRIC = "latency"
TIMES_LONGER = 30.0
"""An instance may take so many times the suite's ``max_seconds`` for its rounds: all of them make the same number."""
LEAST_SHARE = 0.5
"""A launch that got through less than this share of its rounds in some instance is left out."""
NEAR_BEST = 1.25
"""A suite's numbers are good if its interval is at most this much wider than the best in the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How much is measured to tell levels apart."""

    launches: int = LAUNCHES
    instances: int = INSTANCES
    rounds: int = ROUNDS

    @property
    def in_stretch(self) -> int:
        """Rounds of a stretch: even, so that mirrored rounds stay together."""
        return max(self.rounds // STRETCHES // 2 * 2, 2)

    def of(self, suite: Suite) -> Suite:
        """Return a suite as it is measured here."""
        protocol = suite.model.protocol
        changes = {
            "launches": self.launches,
            "until": "launches",
            "budget": None,
            "instances": self.instances,
            "min_samples": self.rounds,
            "max_samples": self.rounds,
            "max_seconds": TIMES_LONGER * protocol.max_seconds,
        }
        changed = Protocol.model_validate({**protocol.model_dump(), **changes})
        return replace(suite, model=suite.model.model_copy(update={"protocol": changed}))


def level_figures(
    suites: Sequence[str],
    runner: str,
    store: Path,
    *,
    design: Design = Design(),
    within_s: float | None = None,
    quiet: bool = False,
) -> list[Figure]:
    """Measure variance and cost of each level of replication, and say the best numbers for a time.

    Args:
        suites: Names or files; their operations can be made anew within a launch.
        runner: A runner with real ranks.
        store: Where the records go.
        design: How much is measured.
        within_s: The time of one point; what the suite's own numbers take where it is None.
        quiet: No progress bar.

    Raises:
        UserErrors: A suite that cannot have several instances.
        InfrastructureError: It was interrupted, or too few launches gave numbers.
    """
    loaded = [load_suite(content.find_suite(name)) for name in suites]
    figures: list[Figure] = []
    refused = [e for s in loaded for e in instance_errors(design.of(s).model, s.family, s.located)]
    if refused:
        raise UserErrors(refused)
    for suite in loaded:
        record = run_suite(design.of(suite), runner, store, quiet=quiet)
        figures += figures_of(record, suite, design, within_s)
    return figures


def figures_of(record: RunRecord, suite: Suite, design: Design, within_s: float | None) -> list[Figure]:
    """Return one figure for each technique at each point of a record that ``Design.of`` made.

    Raises:
        InfrastructureError: Too few launches gave numbers.
    """
    figures = []
    starts = _starts(record)
    for point in points_of(record):
        base = point.cells.get((point.baseline, METRIC))
        for label in point.labels:
            cell = point.cells.get((label, METRIC))
            if base is not None and cell is not None and label != point.baseline:
                figures.append(_figure(record, suite, point, (cell, base), starts, design, within_s))
    if not figures:
        reasons = [m.reason for m in record.measurements if m.status != "ok"]
        raise InfrastructureError(
            f"no technique of {suite.name} gave a number beside its baseline: {reasons[:1]}"
        )
    return figures


def _figure(
    record: RunRecord,
    suite: Suite,
    point: Point,
    sides: tuple[Cell, Cell],
    starts: Mapping[int, float],
    design: Design,
    within_s: float | None,
) -> Figure:
    label, baseline = sides[0].label, sides[1].label
    shared, used = _usable(sides, design)
    if len(shared) < LEAST_LAUNCHES:
        raise InfrastructureError(
            f"{len(shared)} of {number_of(design.launches, 'launch')} gave half of the "
            f"{number_of(design.rounds, 'round')} of {label} and "
            f"{baseline} in each instance; {LEAST_LAUNCHES} are the least: run it again, with fewer --rounds"
        )
    logs = [_logs(cell, shared, used) for cell in sides]
    ratio = _stretches(logs[0] - logs[1], used)
    found = components(ratio, used.in_stretch)
    drawn = resampled(ratio, used.in_stretch)
    costs = _costs(record, sides[0], starts, shared)
    suites_own = _suites_own(suite, costs, point, shared)
    time_s = within_s if within_s is not None else cost_s(suites_own, costs)
    chosen = best(found, costs, time_s)
    compared = chosen or suites_own
    value, low, high = _ratio_of_widths(found, drawn, suites_own, compared)
    return Figure(
        name=f"{label} / {baseline}, {told(point.params, point.family)}",
        what="width of the interval with the suite's numbers over that with the best in the same time",
        value=value,
        low=low,
        high=high,
        unit="ratio",
        limit=NEAR_BEST,
        reached=value <= NEAR_BEST,
        trials=len(shared),
        details={
            "suite": suite.name,
            "levels": _levels(found, drawn),
            "own": {
                name: asdict(components(_stretches(side, used), used.in_stretch))
                for name, side in zip((label, baseline), logs, strict=True)
            },
            "costs_s": asdict(costs),
            "design": {**asdict(used), "rounds_in_stretch": used.in_stretch},
            "suites_own": _told(suites_own, found, costs),
            "best": None if chosen is None else _told(chosen, found, costs),
            "ideal": [_finite(number) for number in ideal(found, costs)],
            "within_s": time_s,
            "ratio": math.exp(float(ratio.mean())),
            "run_id": record.run.run_id,
            "host_class": record.run.host_class,
        },
    )


def _usable(sides: tuple[Cell, Cell], design: Design) -> tuple[list[int], Design]:
    """Return the launches in which both sides have enough rounds in every instance, and the design with their rounds.

    A layout is balanced: all have as many rounds as the one with fewest.
    """
    made: dict[int, list[int]] = {}
    for cell in sides:
        for m in cell.measurements:
            complete = m.instances is not None and len(m.instances) == design.instances
            made.setdefault(m.launch, []).append(min(m.instances or [0]) if complete else 0)
    least = max(LEAST_SHARE * design.rounds, 2 * STRETCHES if design.rounds >= 2 * STRETCHES else 4)
    kept = {n: min(counts) for n, counts in made.items() if len(counts) == 2 and min(counts) >= least}
    return sorted(kept), replace(design, rounds=min(kept.values(), default=design.rounds))


def _logs(cell: Cell, launches: Sequence[int], design: Design) -> np.ndarray:
    """Return the logarithms of a side's times: (launches, instances, rounds), the last rounds of each instance."""
    sizes = {m.launch: m.instances or [] for m in cell.measurements}
    taken = []
    for launch in launches:
        ends = np.cumsum(sizes[launch])
        taken.append([cell.samples[launch][end - design.rounds : end] for end in ends])
    return np.asarray(np.log(np.asarray(taken, dtype=np.float64)))


def _stretches(logs: np.ndarray, design: Design) -> np.ndarray:
    """Return the median of each stretch; what fills no stretch is left out from the beginning."""
    count = design.rounds // design.in_stretch
    kept = logs[:, :, design.rounds - count * design.in_stretch :]
    split = kept.reshape(*logs.shape[:2], count, design.in_stretch)
    return np.asarray(np.median(split, axis=3))


def _starts(record: RunRecord) -> dict[int, float]:
    """Return what each launch took beside its blocks, shared out among them: start, imports of techniques, end."""
    blocks: dict[int, list[float]] = {}
    elapsed: dict[int, float] = {}
    for event in record.events:
        if event.kind == "block_end":
            blocks.setdefault(int(event.data["launch"]), []).append(float(event.data["elapsed_s"]))
        elif event.kind == "launch_end":
            launch = int(event.data["launch"])
            elapsed[launch] = elapsed.get(launch, 0.0) + float(event.data["elapsed_s"])
    return {n: max(elapsed[n] - sum(spent), 0.0) / len(spent) for n, spent in blocks.items() if n in elapsed}


def _costs(record: RunRecord, cell: Cell, starts: Mapping[int, float], launches: Sequence[int]) -> Costs:
    """Return the cost of each level at a point, medians over launches."""
    took = {
        int(e.data["launch"]): float(e.data["elapsed_s"])
        for e in record.events
        if e.kind == "block_end" and e.data["block"] == cell.measurements[0].block
    }
    found = [
        _costs_of_launch(m, took[m.launch], starts[m.launch])
        for m in cell.measurements
        if m.launch in launches and m.launch in took and m.launch in starts
    ]
    if not found:
        raise InfrastructureError("the record does not say what its launches took; measure again")
    return Costs(
        launch=median(c.launch for c in found),
        instance=median(c.instance for c in found),
        round=median(c.round for c in found),
    )


def _costs_of_launch(m: Measurement, took_s: float, start_s: float) -> Costs:
    harness: Mapping[str, Any] = (m.accounting or {}).get("harness") or {}
    num_instances = len(m.instances or [1])
    round_s = float(harness["measure_s"]) / (m.n + len(m.warmup or []))
    rest = took_s - float(harness["gate_s"]) - m.n * round_s
    return Costs(launch=start_s + float(harness["gate_s"]), instance=rest / num_instances, round=round_s)


def _suites_own(suite: Suite, costs: Costs, point: Point, launches: Sequence[int]) -> Numbers:
    """Return the suite's numbers: what its stop rule would have let each instance that was measured do."""
    protocol = suite.model.protocol
    limits = Limits.of(protocol.model_dump())
    affordable = max(int(limits.max_seconds / costs.round), 1)
    stopped = [
        min(_rounds_until_narrow(point, launch, number, limits), affordable, limits.max_samples)
        for launch in launches
        for number in range(len(_first(point, launch).instances or [1]))
    ]
    return Numbers(
        launches=protocol.planned_launches.first,
        instances=protocol.instances,
        rounds=max(int(median(stopped)), 1),
    )


def _rounds_until_narrow(point: Point, launch: int, instance: int, limits: Limits) -> int:
    """Return after how many rounds of an instance the medians of all techniques are known to ``ci_target``."""
    series = []
    for label in point.labels:
        for m in point.cells[(label, METRIC)].measurements:
            if m.launch == launch and m.instances is not None:
                begin = sum(m.instances[:instance])
                series.append(m.samples[begin : begin + m.instances[instance]])
    longest = min(map(len, series))
    for count in range(min(limits.min_samples, longest), longest + 1, 2):
        if all(relative_half_width(s[:count]) <= limits.ci_target for s in series):
            return count
    return limits.max_samples


def _first(point: Point, launch: int) -> Measurement:
    return next(m for cell in point.cells.values() for m in cell.measurements if m.launch == launch)


def _ratio_of_widths(
    found: Components, drawn: Sequence[Components], own: Numbers, other: Numbers
) -> tuple[float, float, float]:
    def of(parts: Components) -> float:
        narrow = half_width(other, parts)
        return half_width(own, parts) / narrow if narrow > 0 else 1.0

    return (of(found), *interval([of(parts) for parts in drawn]))


def _levels(found: Components, drawn: Sequence[Components]) -> dict[str, dict[str, float]]:
    """Return of each level its variance, and its spread (the root of it) with an interval."""
    levels = {}
    for name, variance in asdict(found).items():
        low, high = interval([getattr(c.clipped, name) for c in drawn])
        levels[name] = {
            "variance": variance,
            "spread": math.sqrt(max(variance, 0.0)),
            "low": math.sqrt(low),
            "high": math.sqrt(high),
        }
    return levels


def _told(numbers: Numbers, found: Components, costs: Costs) -> dict[str, Any]:
    """Return numbers with what they give, and what share of a launch's variance each level then has."""
    parts = found.clipped
    shares = {
        "launch": parts.launch,
        "instance": parts.instance / numbers.instances,
        "round": parts.round / numbers.instances / numbers.rounds,
    }
    whole = sum(shares.values())
    return {
        **asdict(numbers),
        "half_width": half_width(numbers, found),
        "cost_s": cost_s(numbers, costs),
        "shares": {k: v / whole if whole > 0 else 0.0 for k, v in shares.items()},
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
