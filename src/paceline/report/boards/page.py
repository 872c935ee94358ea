"""What the pages of boards show: tables with links and interval glyphs, sweeps, and what has no number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from markupsafe import Markup

from paceline.analysis.compare import Comparison
from paceline.analysis.failures import grouped
from paceline.analysis.points import Point
from paceline.base.families.family import load_family
from paceline.base.root_cause import ranks_text
from paceline.base.units import format_quantity
from paceline.records.format.record import Run
from paceline.report.charts import large
from paceline.report.html import NO_DIFFERENCE, Cell, Grid, body_cell, column_kinds, rows_grid, verdict_class
from paceline.report.tables.results import board_table, diagnostic_table, format_param, primary_metric
from paceline.report.words.estimates import ABSENT, ends_of_effect
from paceline.report.words.names import metric_label, param_label
from paceline.stats.estimates import Estimate

STALE_DAYS = 90
"""A number is stale when the site's newest run is so much younger: code, packages and machine have moved on."""
MAX_LISTED = 4
"""Values or techniques of one failure that a row names."""
MAX_SPAN = 32.0
"""The interval glyphs end at this ratio; what lies beyond is drawn at their edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One drawing with its heading."""

    title: str
    graphic: Markup
    plot: str | None = None
    """Its numbers for the pages' script (``plots``), where there is something to zoom into."""
    note: str = ""
    """What a reader has to know of it, in a sentence below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a board needs to say of the runs that its numbers are from."""

    newest: str
    """When the newest run of the site began, in UTC: what is stale is so against it, not against the day of reading."""
    hrefs: Mapping[str, str]
    """Run id → its page."""

    published: frozenset[str] = frozenset()
    """Runs that the checkout publishes, where one's own stand beside them."""

    def marks(self, run: Run) -> list[str]:
        """Return why numbers of a run are to be read with care: published, stale, dirty tree, unofficial."""
        found = ["published"] if run.run_id in self.published else []
        if _day(self.newest) - _day(run.started) > timedelta(days=STALE_DAYS):
            found.append("stale")
        if run.code.get("dirty"):
            found.append("dirty tree")
        if run.imported_from is not None:
            found.append("unofficial")
        return found


def board_grid(
    points: Sequence[Point],
    comparisons: Sequence[Comparison],
    hrefs: Mapping[int, str],
    title: str,
    origin: Origin,
) -> Grid:
    """Return ``report.tables.results.board_table`` with links and interval glyphs: a group of rows for each point.

    Args:
        points: Points of one board.
        comparisons: Comparisons of (at least) these points.
        hrefs: ``id`` of a point → its page; points without one are not linked.
        title: Caption of the table.
        origin: Of their runs.
    """
    table = board_table(points, comparisons)
    num_keys = table.headers.index("technique")
    kinds = ["text"] * num_keys + column_kinds(table.headers, table.rows)[num_keys:]
    primary = primary_metric(points)
    own = {id(p) for p in points}
    effects = {(id(c.point), c.label): c for c in comparisons if c.metric == primary and id(c.point) in own}
    span = _span(effects.values())
    groups, begin = [], 0
    for point in points:
        labels = table_labels(point)
        rows = table.rows[begin : begin + len(labels)]
        begin += len(labels)
        group = []
        for number, (label, row) in enumerate(zip(_order(rows, num_keys), rows, strict=True)):
            keys = [
                Cell(text=text, kind="text key", header=True, rows=len(rows))
                for text in (row[:num_keys] if number == 0 else ())
            ]
            effect = effects.get((id(point), label))
            cells = _row(table.headers, row, kinds, num_keys, hrefs.get(id(point)), effect, span)
            cells[0] = cells[0]._replace(graphic=_lost_launches(point, label))
            group.append((*keys, *cells, _measured(point, label, row[-1], origin)))
        groups.append(tuple(group))
    assert begin == len(table.rows)
    names = _labelled(table.headers, num_keys)
    heads = [Cell(text=h, kind=kind) for h, kind in zip(names, kinds, strict=True)]
    keys = [head._replace(kind="text key") for head in heads[:num_keys]]
    headers = (*keys, *_verdict_first(heads[num_keys:]), Cell(text="measured", kind="text"))
    return Grid(title=title, headers=headers, groups=tuple(groups), notes=table.notes)


def _labelled(headers: Sequence[str], num_keys: int) -> list[str]:
    """Return headings as people write them: of parameters, and of metrics."""
    fixed = ("technique", "rank", "× baseline", "− baseline", "verdict", "n", "grade")
    return [
        param_label(h) if i < num_keys else h if h in fixed else metric_label(h)
        for i, h in enumerate(headers)
    ]


def _verdict_first(cells: Sequence[Cell]) -> list[Cell]:
    """Put verdict and effect behind the technique, where a telephone shows them; rank follows the value.

    The tables of terminals have technique, rank, value, effect, verdict, and then the rest.
    """
    technique, rank, value, effect, verdict, *rest = cells
    return [technique, verdict, effect, value, rank, *rest]


def diagnostic_grid(points: Sequence[Point]) -> Grid | None:
    """Return ``report.tables.results.diagnostic_table`` as a page shows it; None where a suite has no such metrics."""
    table = diagnostic_table(points)
    return None if table is None else rows_grid(table.title, table.headers, table.rows, table.notes)


def _measured(point: Point, label: str, grade: str, origin: Origin) -> Cell:
    """Return the day of a number, which leads to its run, and marks of what it is not."""
    own = set().union(*(cell.flags for (name, _), cell in point.cells.items() if name == label))
    isolation = [mark for mark in ("sandboxed", "unisolated") if mark in own]
    marks = [*(["exploratory"] if grade == "C" else []), *isolation, *origin.marks(point.run)]
    flags = Markup("").join(Markup('<span class="flag">{}</span>').format(mark) for mark in marks)
    return Cell(
        text=point.run.started[:10],
        href=origin.hrefs.get(point.run.run_id),
        kind="text",
        graphic=flags if marks else None,
    )


def _day(text: str) -> date:
    """Return the day of a time; the first of all days where a record of other people has none."""
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return date.min


def _lost_launches(point: Point, label: str) -> Markup | None:
    """Say beside a technique with numbers that some of its launches gave none."""
    if label not in point.labels or label not in point.failures:
        return None
    counts = Counter({m.launch: m.status for m in point.failures[label]}.values())
    text = ", ".join(f"{n} {status}" for status, n in sorted(counts.items()))
    return Markup('<span class="flag">{}</span>').format(text)


def table_labels(point: Point) -> list[str]:
    """Return the techniques of a point that have a row: those with numbers, then those that only failed."""
    return [*point.labels, *(name for name in point.failures if name not in point.labels)]


def _order(rows: Sequence[Sequence[str]], column: int) -> list[str]:
    return [row[column] for row in rows]


def _row(
    headers: Sequence[str],
    row: Sequence[str],
    kinds: Sequence[str],
    first: int,
    href: str | None,
    effect: Comparison | None,
    span: float,
) -> list[Cell]:
    cells = [Cell(text=row[first], href=href, kind="text technique")]
    columns = list(zip(headers, row, kinds, strict=True))[first + 1 :]
    if row[-1] == "" and row[first + 1] == ABSENT:
        status = Cell(text=row[first + 2].partition(":")[0], kind="text verdict quiet")
        reason = Cell(text=row[first + 2], kind="text failure", columns=len(columns) - 2)
        return [*cells, status, Cell(text=ABSENT, kind=columns[2][2]), reason]
    for header, text, column in columns:
        graphic, kind = None, column
        if header.endswith(" baseline") and effect is not None and effect.kind == "ratio":
            e = effect.effect
            ends = ends_of_effect(e, effect.kind)
            if ends.kind in ("interval", "range") and ends.low > 0 and math.isfinite(e.value) and e.value > 0:
                kind_of = verdict_class(effect.verdict.name)
                colour = kind_of if kind_of in ("good", "bad") else "open"
                graphic = large.interval_glyph(ends.low, e.value, ends.high, span, colour)
        if header.endswith(" baseline"):
            kind += " effect"
        aside = " aside" if header == "× baseline" and graphic is None and text else ""
        cell = body_cell(header, text, kind + aside)
        shown = shown_verdict(cell.text, effect) if header == "verdict" and effect is not None else cell.text
        cells.append(Cell(text=shown, kind=cell.kind, graphic=graphic))
    return _verdict_first(cells)


def shown_verdict(text: str, comparison: Comparison) -> str:
    """Return a verdict as pages write it: of two that are equal, above which difference nothing is known."""
    return f"{NO_DIFFERENCE}{margin_text(comparison)}" if text == "equivalent" else text


def margin_text(comparison: Comparison) -> str:
    """Write the margin within which two techniques are equal: per cent of a ratio, else in the metric's unit."""
    margin = comparison.margin
    if comparison.kind == "ratio":
        return f"{margin * 100:.3g} %"
    return format_quantity(margin, comparison.unit)


def _span(comparisons: Any) -> float:
    """Return the ratio at which the glyphs of a board end: a power of two that holds most intervals."""
    farthest = 1.5
    for c in comparisons:
        ends = ends_of_effect(c.effect, c.kind)
        for end in (ends.low, ends.high):
            if c.kind == "ratio" and end > 0 and math.isfinite(end):
                farthest = max(farthest, end, 1 / end)
    return float(min(MAX_SPAN, 2.0 ** math.ceil(math.log2(farthest * 1.05))))


def point_name(point: Point, keys: Sequence[str]) -> str:
    """Name a point by the parameters that tell it apart; where it is the only one, by its operation."""
    shown = keys or [k for k in ("size_bytes", "dtype", "ranks") if k in point.params]
    return ", ".join(param_text(point, k) for k in shown) or str(
        point.params.get("op", "the only point")
    ).replace("_", " ")


def param_text(point: Point, key: str) -> str:
    """Write a parameter as people do, such as ``size 8 B``."""
    return f"{param_label(key)} {format_param(key, point.params.get(key))}"


NETWORKS: Mapping[str, str] = {
    "host": "ranks are processes of this machine, joined by its loopback",
    "namespaces": "every rank is in a network namespace of its own, behind a link of a stated rate or delay",
}
"""How ranks of one machine are joined."""


def runner_text(runner: Mapping[str, Any]) -> str:
    """Say how a runner joins ranks, by what its record tells; empty for what no machine joins by itself."""
    text = NETWORKS.get(str(runner.get("network")), "")
    if text and runner.get("network") == "namespaces" and runner.get("default_link"):
        text += f": {runner['default_link']} where a point names none"
    return f"{text[:1].upper()}{text[1:]}." if text else ""


RESOURCES = frozenset({"ranks", "devices", "servers", "nodes"})
"""Parameters that count what computes."""


def shared_params(points: Sequence[Point]) -> list[str]:
    """Write the parameters that all points share, but for those with the value that they have by default.

    How many things are computed with is told in any case: a gain on seven models is none on one.
    """
    first = points[0]
    family = load_family(first.family)
    found = []
    for parameter in family.parameters_for(str(first.params.get("op", ""))):
        values = {repr(p.params.get(parameter.name)) for p in points}
        value = first.params.get(parameter.name)
        told = parameter.name in RESOURCES or value != parameter.default
        if len(values) == 1 and value is not None and told and parameter.name != "op":
            found.append(param_text(first, parameter.name))
    return found


def estimate(point: Point, label: str, metric: str) -> Estimate:
    """Estimate a cell as the tables do."""
    return point.estimate(label, metric)


def failure_grid(points: Sequence[Point], keys: Sequence[str], title: str = "without a number") -> Grid:
    """Return why measurements have no number: a row for each reason, with where it struck."""
    params = {(p.suite, p.block): p.params for p in points}
    failed = (m for p in points for found in p.failures.values() for m in found)
    rows: list[list[Cell | str]] = []
    for failure in grouped(failed):
        struck = [params[(m.suite, m.block)] for m in failure.measurements]
        where = [_listed((format_param(k, of.get(k)) for of in struck), "values") for k in keys]
        labels = _listed((m.label for m in failure.measurements), "techniques")
        ranks = f"{ranks_text(failure.ranks)}: " if failure.ranks else ""
        reason = Cell(text=f"{ranks}{failure.reason}", kind="text prose")
        rows.append([*where, labels, failure.status, _launches(set(failure.launches)), reason])
    return rows_grid(title, (*keys, "technique", "status", "launches", "reason"), rows)


def _listed(texts: Iterable[str], noun: str) -> str:
    """Name what differs, or count it where it is much."""
    found = list(dict.fromkeys(texts))
    return ", ".join(found) if len(found) <= MAX_LISTED else f"{len(found)} {noun}"


def _launches(numbers: set[int]) -> str:
    return ", ".join(str(n) for n in sorted(numbers))
