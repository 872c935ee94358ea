"""What the page of a point shows: raw samples, launches, every metric, checks, contract, earlier runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.analysis.points import Point, compared, grade_of, headline
from paceline.base.families.contracts import contract_id
from paceline.base.families.family import load_family
from paceline.base.units import format_quantity
from paceline.report.boards.page import Chart, estimate
from paceline.report.charts import large
from paceline.report.html import Cell, Grid, rows_grid
from paceline.report.tables.results import primary_metric, value_text
from paceline.report.words.estimates import ABSENT

MAX_HISTORY = 50
"""Earlier measurements of a point that its page lists."""
METRIC_HEADERS = ("metric", "technique", "value", "predicted", "launches", "samples", "flags")


def distributions(point: Point, names: Sequence[str]) -> list[Chart]:
    """Return a chart of the raw samples of each metric that is compared and whose samples differ."""
    family = load_family(point.family)
    named = [*compared(point.run, point.suite), *family.default_metrics]
    wanted = [name for name in named if family.metric(name).statistic != "last"]  # a curve, no distribution
    found = (_distribution(point, metric, names) for metric in dict.fromkeys(wanted))
    return [chart for chart in found if chart is not None]


def _distribution(point: Point, metric: str, names: Sequence[str]) -> Chart | None:
    colour = large.colours(names, point.baseline)
    cells = {n: point.cells[(n, metric)] for n in point.labels if (n, metric) in point.cells}
    if all(len({v for drawn in cell.samples.values() for v in drawn}) == 1 for cell in cells.values()):
        return None
    groups = [
        large.Distribution(
            name=label,
            colour=colour[label],
            launches=tuple((n, tuple(cell.samples[n]), cell.values[n]) for n in sorted(cell.values)),
        )
        for label, cell in cells.items()
    ]
    unit = next(iter(cells.values())).unit
    graphic = large.distribution_chart(
        groups,
        title=f"distribution of the raw samples of {metric}, by technique and launch",
        x_name=metric,
        x_format=lambda v: format_quantity(v, unit),
        binary=unit == "B",
    )
    return Chart(title=f"Raw samples of {metric}", graphic=graphic)


def launch_grid(point: Point) -> Grid:
    """Return the primary metric's statistic of every launch, with the number of raw samples behind it."""
    metric = primary_metric([point])
    cells = {n: point.cells[(n, metric)] for n in point.labels if (n, metric) in point.cells}
    launches = sorted({launch for cell in cells.values() for launch in cell.values})
    statistic = load_family(point.family).metric(metric).statistic
    rows = []
    for label, cell in cells.items():
        row = [label]
        for launch in launches:
            value = cell.values.get(launch)
            count = cell.samples.count(launch)
            row.append(ABSENT if value is None else f"{format_quantity(value, cell.unit)} ({count})")
        total = cell.samples.total
        rows.append([*row, value_text(point, label, metric), str(total)])
    headers = ("technique", *(f"launch {n}" for n in launches), "all launches", "samples")
    return rows_grid(f"{metric}: {statistic} of each launch (raw samples)", headers, rows)


def headline_grid(point: Point) -> Grid:
    """Return the suite's headline metrics of every technique, and what the technique's closed form predicts."""
    measured = point.metrics()
    names = [name for name in headline(point.run, point.suite) if name in measured]
    return rows_grid("headline metrics", METRIC_HEADERS, _metric_rows(point, names))


def diagnostic_grid(point: Point) -> Grid:
    """Return all other metrics that were measured, and the figures that the family computes from measured ones."""
    names = [name for name in point.metrics() if name not in headline(point.run, point.suite)]
    rows = [*_metric_rows(point, names), *_derived_rows(point)]
    return rows_grid("diagnostic metrics", METRIC_HEADERS, rows)


def _metric_rows(point: Point, names: Sequence[str]) -> list[list[str]]:
    rows = []
    for metric in names:
        for label in point.labels:
            cell = point.cells.get((label, metric))
            if cell is None:
                continue
            predicted = next((m.predicted for m in cell.measurements if m.predicted is not None), None)
            rows.append(
                [
                    metric,
                    label,
                    value_text(point, label, metric),
                    ABSENT if predicted is None else format_quantity(predicted, cell.unit),
                    str(len(cell.values)),
                    str(cell.samples.total),
                    ", ".join(sorted(cell.flags)) or ABSENT,
                ]
            )
    return rows


def _derived_rows(point: Point) -> list[list[str]]:
    """Return the figures that the family computes from measured ones, each with its formula."""
    rows = []
    for derived in load_family(point.family).derived:
        for label in point.labels:
            sources = [name for name in (derived.source, derived.second_source) if name is not None]
            cells = [point.cells[(label, name)] for name in sources if (label, name) in point.cells]
            if len(cells) < len(sources):
                continue
            value = derived.of(point.params, *(estimate(point, label, name).value for name in sources))
            if value is not None and math.isfinite(value):
                name, count = f"{derived.name} = {derived.formula}", str(min(len(c.values) for c in cells))
                text = format_quantity(value, derived.unit)
                rows.append([name, label, text, ABSENT, count, ABSENT, "derived"])
    return rows


def evidence_grid(point: Point) -> Grid:
    """Return what was checked before a number was kept, and how near the numbers are to the ceilings."""
    metric = primary_metric([point])
    rows = []
    for label in point.labels:
        cell = point.cells.get((label, metric))
        if cell is None:
            continue
        first = cell.measurements[0]
        correct = first.correctness or {}
        ceiling = first.ceilings or {}
        fraction = ceiling.get("fraction_of_calibrated")
        reasons = dict.fromkeys(m.stop_reason for m in cell.measurements if m.stop_reason)
        rows.append(
            [
                label,
                str(correct.get("oracle") or ABSENT),
                _number(correct.get("gate_checks")),
                _number(correct.get("timed_calls_verified")),
                _number(correct.get("max_relative_l2")),
                f"{fraction:.1%}" if isinstance(fraction, float) and math.isfinite(fraction) else ABSENT,
                str(ceiling.get("binding") or ABSENT),
                ", ".join(reasons) or ABSENT,
            ]
        )
    headers = (
        "technique",
        "oracle",
        "gate checks",
        "timed calls verified",
        "relative error",
        "of calibrated ceiling",
        "bound by",
        "sampling stopped by",
    )
    return rows_grid("checks and ceilings of the first launch", headers, rows)


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ABSENT
    return str(value) if isinstance(value, int) else f"{value:.2g}"


def contract_rows(point: Point) -> list[tuple[str, str]]:
    """Return the primary metric's exact definition, when the record was made under the one known here."""
    metric = load_family(point.family).metric(primary_metric([point]))
    used = {c.contract_id for (_, name), c in point.cells.items() if name == metric.name}
    known = contract_id(point.family, metric)
    if used != {known}:
        return [
            ("contract", f"{', '.join(sorted(used)) or ABSENT}: not the definition that this version has")
        ]
    facts = [("metric", metric.doc), ("statistic", metric.statistic), *metric.contract.items()]
    return [*facts, ("contract id", known)]


def history_grid(points: Sequence[Point], run_hrefs: Mapping[str, str]) -> Grid:
    """Return earlier and later measurements of one point, newest first."""
    shown = list(points[:MAX_HISTORY])
    names = sorted({label for p in shown for label in p.labels})
    metric = primary_metric([p for p in shown if p.cells] or shown)
    rows: list[list[Cell | str]] = []
    for point in shown:
        cells = [c for (_, name), c in point.cells.items() if name == metric]
        counts = [len(c.values) for c in cells]
        row: list[Cell | str] = [
            Cell(
                text=point.run.started[:16].replace("T", " "),
                href=run_hrefs.get(point.run.run_id),
                kind="text",
            )
        ]
        for label in names:
            cell = point.cells.get((label, metric))
            row.append(value_text(point, label, metric) if cell else ABSENT)
        count = min(counts, default=0)
        flags = set().union(*(c.flags for c in cells))
        rows.append([*row, str(count), grade_of(point.run, count, flags=flags)])
    left_out = len(points) - len(shown)
    notes = (f"{left_out} earlier runs are not listed",) if left_out else ()
    return rows_grid(f"{metric} in every run", ("run", *names, "n", "grade"), rows, notes)
