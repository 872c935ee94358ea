"""From records to points: the numbers of all techniques at one workload, with what a suite compares and how good it is.

A point is one workload with its parameters on one host class, measured in one run; all of its techniques shared
launches. Points of different host class, contract, image class or scale never meet in one table.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.base.families.family import MOST_HEADLINE, is_missed, load_family
from paceline.records.format.record import Measurement, Run
from paceline.records.store.folder import RunRecord
from paceline.records.store.launches import series_of
from paceline.stats.estimates import (
    CONFIDENCE,
    Estimate,
    Launches,
    compare_difference,
    compare_ratio,
    estimate_value,
)
from paceline.stats.sequential import level_after
from paceline.worker.launches.stopping import LEAST_QUIET
from paceline.worker.machine.foreign_load import who

LEADERBOARD_LAUNCHES = 5
MOST_NAMED = 3
"""Files that are named where code had uncommitted changes."""


GRADES: Mapping[str, str] = {
    "A": "five or more interleaved launches of committed code, and a second run that agrees on the effect",
    "B": "five or more interleaved launches of committed code",
    "C": "exploratory: fewer launches, code with uncommitted changes or no commit, or results that nothing checked",
    "D": "imported: the raw samples or the provenance are not ours",
}
"""Evidence grades, best first."""


FIXED_SEED = "fixed-seed"
"""Flag of a run's numbers whose draws could be known beforehand."""
BESIDE_OTHERS = "beside-others"
"""Flag of times of which some launches ran while others took the machine."""
UNVERIFIED = frozenset({"unchecked", "self-reported", "unisolated"})
"""Flags of numbers of programs whose result nothing has checked, or which the program gave itself, and of candidates
that nothing kept from their judge."""
WRONG = frozenset({"incorrect", "refused", "invalid"})
"""Statuses that cast doubt on a technique's other launches."""


class Samples(Mapping[int, Sequence[float]]):
    """The raw samples of a cell by launch, taken from the measurements when somebody asks."""

    def __init__(self) -> None:
        self.sources: dict[int, Measurement] = {}

    def __getitem__(self, launch: int) -> Sequence[float]:
        """Return the samples of a launch."""
        return self.sources[launch].samples

    def __iter__(self) -> Iterator[int]:
        """Yield the launches in the order in which they were added."""
        return iter(self.sources)

    def __len__(self) -> int:
        """Return how many launches there are."""
        return len(self.sources)

    def count(self, launch: int) -> int:
        """Return how many samples a launch has, none where it is not there."""
        return self.sources[launch].n if launch in self.sources else 0

    @property
    def total(self) -> int:
        """How many samples all launches have."""
        return sum(source.n for source in self.sources.values())


@dataclass(slots=True, kw_only=True)
class Cell:
    """One technique at one point for one metric, over all launches of a run."""

    label: str
    technique: str
    role: str
    case_id: str
    metric: str
    unit: str
    better: str
    contract_id: str
    values: dict[int, float] = field(default_factory=dict)
    samples: Samples = field(default_factory=Samples)
    flags: set[str] = field(default_factory=set)
    measurements: list[Measurement] = field(default_factory=list)
    confidence: float = CONFIDENCE
    """Nominal, of its intervals: higher where a run until decided was looked at more than once."""
    until_decided: bool = False
    """Whether looks at its run ended the launches."""
    missed: set[int] = field(default_factory=set)
    """Launches that are infinite here (``paceline.base.families.family.MISSED``)."""
    beside_others: dict[int, float] = field(default_factory=dict)
    """Launches that count for nothing, since others took the machine meanwhile, and their values."""
    busy: str = ""
    """Who took the machine, where too few launches are left without that."""
    estimated: Estimate | None = field(default=None, repr=False, compare=False)
    """The cell's estimate, once somebody asked for it."""

    @property
    def launches(self) -> Launches:
        """The cell as one side of a comparison."""
        statistic = self.measurements[0].metric.statistic if self.measurements else "median"
        return Launches(
            values=self.values,
            samples=self.samples,
            statistic=statistic,
            missed=frozenset(self.missed),
            confidence=self.confidence,
            until_decided=self.until_decided,
            busy=self.busy,
        )


@dataclass(slots=True, kw_only=True)
class Point:
    """One workload and its parameters in one run."""

    run: Run
    suite: str
    suite_version: int
    family: str
    block: str
    params: Mapping[str, Any]
    baseline: str
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    """(label, metric) → cell."""
    failures: dict[str, list[Measurement]] = field(default_factory=dict)
    """Label → measurements without a number."""
    never: set[tuple[str, str]] = field(default_factory=set)
    """(label, metric) of what every launch looked for to the end and missed: it is infinite, and has no cell."""
    together: Mapping[str, Point] = field(default_factory=dict, repr=False, compare=False)
    """Block → point: all of the suite in the run, over which verdicts are corrected for many comparisons."""
    confirmed: set[tuple[str, str]] = field(default_factory=set)
    """(label, metric) of the numbers with which another run agrees."""
    effects: dict[tuple[str, str, str], Estimate] = field(default_factory=dict, repr=False, compare=False)
    """(label, other label, metric) → effects that somebody asked for."""
    ranked: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict, repr=False, compare=False)
    """Metric → rank intervals by it alone that somebody asked for."""
    ordered: dict[str, dict[tuple[str, str], bool]] = field(default_factory=dict, repr=False, compare=False)
    """Metric → (label, other label) → whether the first is better, for metrics that somebody asked for."""
    named: tuple[int, list[str]] = field(default=(0, []), repr=False, compare=False)
    """The labels, and of how many cells."""

    def estimate(self, label: str, metric: str) -> Estimate:
        """Estimate a number over its launches, on the scale of its metric."""
        cell = self.cells[(label, metric)]
        if cell.estimated is None:
            scale = load_family(self.family).metric(metric).scale
            cell.estimated = estimate_value(cell.launches, scale=scale)
        return cell.estimated

    def effect(self, label: str, other: str, metric: str) -> Estimate:
        """Estimate the ratio or difference of two techniques from the launches that they share."""
        key = (label, other, metric)
        if key not in self.effects:
            sides = self.cells[(label, metric)].launches, self.cells[(other, metric)].launches
            ratio = load_family(self.family).metric(metric).compared_by == "ratio"
            self.effects[key] = compare_ratio(*sides) if ratio else compare_difference(*sides)
        return self.effects[key]

    @property
    def labels(self) -> list[str]:
        """Techniques with at least one number, baseline first."""
        if self.named[0] != len(self.cells):
            found = {label for label, _ in self.cells}
            self.named = len(self.cells), sorted(found, key=lambda name: (name != self.baseline, name))
        return list(self.named[1])

    def metrics(self) -> list[str]:
        """Metrics with at least one number."""
        return sorted({metric for _, metric in self.cells})

    def grade(self, label: str, metric: str) -> str:
        """Return the evidence grade of one number (see ``GRADES``)."""
        cell = self.cells.get((label, metric))
        if cell is None:
            return grade_of(self.run, 0)
        return grade_of(self.run, len(cell.values), (label, metric) in self.confirmed, cell.flags)

    @property
    def board(self) -> tuple[str, str, str]:
        """Suite, host class and runner: what may stand in one table."""
        return self.suite, self.run.host_class or "unknown host", str(self.run.runner.get("name"))


def points_of(record: RunRecord) -> list[Point]:
    """Group a record's measurements into points, in the order of the plan.

    A technique whose result was wrong in one launch has no number at that point: nobody knows how often it was right
    by chance. Its measurements stay in the record.
    """
    baselines = {s["suite"]: s.get("baseline", "") for s in record.run.suites}
    flags = () if record.run.fixed_seed is None else (FIXED_SEED,)
    points: dict[tuple[str, str], Point] = {}
    series: dict[Hashable, tuple[Point, list[int], Cell | None]] = {}
    launches: dict[tuple[str, str], list[int]] = {}
    absent: list[Measurement] = []
    for m in record.measurements:
        launch, value, which = m.launch, m.value, series_of(m)
        known = series.get(which)
        if known is None:
            key = (m.suite, m.block)
            point = points.get(key)
            if point is None:
                point = points[key] = _point_of(m, record.run, baselines.get(m.suite, ""))
            known = series[which] = point, launches.setdefault(key, [0]), None
        point, most, cell = known
        if launch >= most[0]:
            most[0] = launch + 1
        if m.absent:
            absent.append(m)
        if m.status != "ok" or value is None:
            point.failures.setdefault(m.label, []).append(m)
            continue
        if cell is None:
            place = (m.label, m.metric.name)
            cell = point.cells.get(place)
            if cell is None:
                cell = point.cells[place] = _cell_of(m)
                cell.flags.update(flags)
            series[which] = point, most, cell
        cell.values[launch] = value
        cell.samples.sources[launch] = m
        if m.flags:
            cell.flags.update(m.flags)
        cell.measurements.append(m)
    for m in absent:
        _note_missed(points[(m.suite, m.block)], m)
    for block, loads in disturbed_launches(record).items():
        for point in (p for (_, name), p in points.items() if name == block):
            for cell in point.cells.values():
                _set_aside(cell, loads, point.family)
    for key, point in points.items():
        looks = looks_of(record.run, point.suite)
        for cell in point.cells.values() if looks else ():
            cell.until_decided, cell.confidence = True, 1 - level_after(looks, launches[key][0])
        wrong = {label for label, failed in point.failures.items() if any(m.status in WRONG for m in failed)}
        point.cells = {key: cell for key, cell in point.cells.items() if key[0] not in wrong}
        point.together = {block: p for (suite, block), p in points.items() if suite == point.suite}
    return sorted(points.values(), key=lambda p: (p.suite, sort_key(p.params)))


def _note_missed(point: Point, measurement: Measurement) -> None:
    """Note of a launch what it looked for to the end and did not find."""
    for name, reason in (measurement.absent or {}).items():
        place = (measurement.label, name)
        if is_missed(reason) and place in point.cells:
            point.cells[place].missed.add(measurement.launch)
        elif is_missed(reason):
            point.never.add(place)


def _point_of(measurement: Measurement, run: Run, baseline: str) -> Point:
    """Return the point of a measurement, which holds no number yet."""
    return Point(
        run=run,
        suite=measurement.suite,
        suite_version=measurement.suite_version,
        family=measurement.family,
        block=measurement.block,
        params=measurement.params,
        baseline=baseline,
    )


def disturbed_launches(record: RunRecord) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Return by block the launches of which others took a part of the machine, with what the launcher saw of it."""
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    for event in record.events:
        for block in event.data.get("disturbed", ()) if event.kind == "launch_end" else ():
            found.setdefault(block, {})[event.data["launch"]] = event.data["load"]
    return found


def _set_aside(cell: Cell, loads: Mapping[int, Mapping[str, Any]], family: str) -> None:
    """Let a cell's launches beside others count for nothing, where enough are left; else say who was there."""
    beside = {launch: value for launch, value in cell.values.items() if launch in loads}
    if not beside or not load_family(family).metric(cell.metric).timed:
        return
    cell.flags.add(BESIDE_OTHERS)
    if len(cell.values) - len(beside) < LEAST_QUIET:
        cell.busy = who(max((loads[launch] for launch in beside), key=lambda load: load["others_cores"]))
        return
    cell.beside_others = beside
    for launch in beside:
        del cell.values[launch]


def _cell_of(measurement: Measurement) -> Cell:
    """Return the cell of a measurement's technique and metric, which holds no launch yet."""
    return Cell(
        label=measurement.label,
        technique=measurement.technique,
        role=measurement.role,
        case_id=measurement.case_id,
        metric=measurement.metric.name,
        unit=measurement.metric.unit,
        better=measurement.metric.better,
        contract_id=measurement.metric.contract_id,
    )


def sort_key(params: Mapping[str, Any]) -> list[tuple[str, float, str]]:
    """Order points by their parameters: numbers by size, the rest by name."""
    return [
        (k, float(v), "") if isinstance(v, int | float) and not isinstance(v, bool) else (k, 0.0, str(v))
        for k, v in sorted(params.items())
    ]


def grade_of(run: Run, num_launches: int, confirmed: bool = False, flags: Collection[str] = ()) -> str:
    """Return the evidence grade of a number (see ``GRADES``).

    Args:
        run: That measured it.
        num_launches: On which it rests.
        confirmed: Whether another run agrees on its effect.
        flags: Of its series.
    """
    if run.imported_from is not None:
        return "D"
    if causes_of_c(run, num_launches, flags):
        return "C"
    return "A" if confirmed else "B"


def causes_of_c(run: Run, num_launches: int, flags: Collection[str] = ()) -> list[str]:
    """Say why a number of our own is exploratory; empty where it is not."""
    few = f"fewer than {LEADERBOARD_LAUNCHES} launches" if num_launches < LEADERBOARD_LAUNCHES else ""
    without = "code without a commit" if run.code.get("commit") is None else ""
    dirty = uncommitted(run) if run.code.get("dirty") else ""
    unverified = "results that nothing checked" if UNVERIFIED & set(flags) else ""
    known = "inputs that a seed fixed, which whoever knew it could know" if FIXED_SEED in flags else ""
    return [cause for cause in (few, without, dirty, unverified, known) if cause]


def uncommitted(run: Run) -> str:
    """Name the files of a run's code that were not as committed."""
    names = [str(name) for name in run.code.get("changed_files") or ()]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"uncommitted changes{' in ' if names else ''}{', '.join(names[:MOST_NAMED])}{more}"


def looks_of(run: Run, suite: str) -> list[int]:
    """Return after how many launches a suite's comparisons were looked at in a run; none unless until decided."""
    looks = (run.plan or {}).get("protocols", {}).get(suite, {}).get("looks")
    return [look for look in looks if isinstance(look, int)] if isinstance(looks, list) else []


def compared(run: Run, suite: str) -> dict[str, float]:
    """Return the metrics that a suite compared in a run, each with its margin."""
    for facts in run.suites:
        if facts["suite"] == suite:
            return dict(facts.get("metrics") or {})
    return {}


def headline(run: Run, suite: str) -> list[str]:
    """Return the metrics that a suite names first in tables; the others that it compares are diagnostic.

    Suites of runs from before that distinction named no diagnostic ones: the first of theirs are taken.
    """
    left_out = diagnostic(run, suite)
    return [name for name in compared(run, suite) if name not in left_out][:MOST_HEADLINE]


def diagnostic(run: Run, suite: str) -> frozenset[str]:
    """Return the metrics that a suite compares and does not ask after: its points are not made to tell them."""
    return frozenset(
        n for facts in run.suites if facts["suite"] == suite for n in facts.get("diagnostic", ())
    )
