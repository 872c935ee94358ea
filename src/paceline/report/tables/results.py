"""Tables of results as plain rows: ``report.tables.terminal`` lays them out, tabulate writes them as Markdown.

One module, since all of them say a number, an effect, a failure and a note in the same words: what stands below one
table stands below the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from textwrap import shorten
from typing import Any

from tabulate import tabulate

from paceline.analysis.compare import Comparison
from paceline.analysis.failures import Failure, grouped
from paceline.analysis.points import GRADES, Cell, Point, causes_of_c, compared, grade_of, headline
from paceline.analysis.runs import RunComparison
from paceline.base.counting import number_of
from paceline.base.families.family import family_names, load_family
from paceline.base.units import format_quantity, format_rate, format_size
from paceline.records.format.record import Measurement
from paceline.report.tables.quality import Loss, losses, qualified, quality_ranks
from paceline.report.tables.shaped_links import burst_note
from paceline.report.tables.terminal import laid_out, terminal_width, wrapped
from paceline.report.words.estimates import (
    ABSENT,
    FEW_NOTE,
    RANGE_MARK,
    format_effect,
    format_estimate,
    verdict_text,
)

HIDDEN_PARAMS = ("op",)
MOST_BUSY = 2
"""Ways in which others took the machine that stand under a table; each point's record has its own."""
MAX_REASON = 60
"""Characters of a failure's reason in a table; the whole of it stands below or on the point's page."""
FLAGS = {
    "bimodal": "bimodal: their median stands for one of two modes",
    "carry-over": "not independent of what ran before them (carry-over): caches, or work left behind",
    "throttled": "from blocks in which the device lowered its clock, or a quota stopped the processor",
    "beside-others": "beside others' work in some launches, which count for nothing",
    "sandboxed": "of candidates in a sandbox, timed and judged from outside",
    "unisolated": "unisolated, so of grade C at best: of candidates that nothing kept from their judge",
    "fixed-seed": "from draws that a seed fixed, so of grade C at best: who knows the seed knows the inputs",
    "from-size-and-time": "from size and time: the tool's own column is coarser than its column of times",
    "below-resolution": "below the resolution: some of the tool's samples read zero",
    "self-reported": "self-reported: figures of the programs themselves, neither measured nor verified here",
    "unchecked": "unchecked: the exit status alone says that the program did its work",
}
"""What a note says of series with a flag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A titled table of text cells, and notes that belong under it."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    """Reasons of rows without a number that do not fit into them; pages give these a table of their own."""
    leaving: tuple[str, ...] = ()
    """Headers of columns that a narrow terminal leaves out, the least important first."""

    def render(self, style: str = "terminal", *, wide: bool = False) -> str:
        """Return the table as text.

        Args:
            style: ``terminal``, which is as wide as the terminal, or ``markdown`` with all columns.
            wide: Show all columns in as many characters as they take.
        """
        under = (*self.notes, *self.failures)
        if style == "markdown":
            # a bar in a reason would end its cell
            rows = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in self.rows]
            body = tabulate(rows, headers=self.headers, tablefmt="github", disable_numparse=True)
            notes = "".join(f"\n- {' '.join(note.split())}" for note in under)
            return f"### {self.title}\n\n{body}{chr(10) if notes else ''}{notes}\n"
        width = None if wide else terminal_width()
        body, left_out = laid_out(self.headers, self.rows, width=width, leaving=self.leaving)
        under = (*under, *([f"--wide shows {', '.join(reversed(left_out))}"] if left_out else []))
        return "\n".join(
            [wrapped(self.title, width), body, *(wrapped(note, width, "  ") for note in under), ""]
        )


def marked(table: Table, reason: str | None) -> Table:
    """Return a table with a title that says why its sides must not be compared, where there is such a reason."""
    if reason is None:
        return table
    return replace(table, title=f"FORCED, NOT COMPARABLE ({reason}): {table.title}")


def format_param(name: str, value: Any) -> str:
    """Write a parameter's value for people."""
    if name.endswith("_bytes") and isinstance(value, int):
        return format_size(value)
    if isinstance(value, float):
        kind = _kinds().get(name)
        if kind == "rate":
            return format_rate(value)
        return format_quantity(value, "s") if kind == "duration" else f"{value:.12g}"
    return ABSENT if value is None else str(value)


@cache
def _kinds() -> Mapping[str, str]:
    """Return the kinds of all families' parameters; a name means one thing in all of them."""
    families = [load_family(name) for name in family_names()]
    return {p.name: p.kind for family in families for p in family.parameters}


def format_counts(counts: Iterable[tuple[str, int]]) -> str:
    """Write names with their numbers, such as ``30 ok, 1 crashed``."""
    return ", ".join(f"{number} {name}" for name, number in counts) or ABSENT


def format_rank(interval: tuple[int, int] | None) -> str:
    """Write a rank interval: ``1`` or ``2-4``."""
    if interval is None:
        return ABSENT
    low, high = interval
    return str(low) if low == high else f"{low}-{high}"


def varying_params(points: Sequence[Point]) -> list[str]:
    """Return the parameters that tell the points of a board apart, most important first."""
    known = dict.fromkeys(key for point in points for key in point.params)
    names = {key: {str(point.params.get(key)) for point in points} for key in known}
    first = ("size_bytes", "ranks", "link", "dtype")
    varying = [k for k, v in names.items() if len(v) > 1 and k not in HIDDEN_PARAMS]
    return sorted(varying, key=lambda k: (first.index(k) if k in first else len(first), k))


def board_table(points: Sequence[Point], comparisons: Iterable[Comparison], *, wide: bool = False) -> Table:
    """Lay out one suite on one host: a row for each point and technique.

    Args:
        points: Points of one suite, host class and runner.
        comparisons: Comparisons of (at least) these points.
        wide: Whether verdicts say how many launches would settle them.
    """
    primary = primary_metric(points)
    keys = varying_params(points)
    by_cell = {(id(c.point), c.label, c.metric): c for c in comparisons}
    lost = losses(by_cell.values())
    secondary = [m for m in _headline_shown(points) if m != primary]
    headers = (
        *keys,
        "technique",
        "rank",
        primary,
        effect_header(points),
        "verdict",
        *secondary,
        "n",
        "grade",
    )
    rows: list[tuple[str, ...]] = []
    failures = grouped(
        m for p in points for name in p.failures if name not in p.labels for m in p.failures[name]
    )
    for point in points:
        placed = quality_ranks(point, primary, lost)
        shown = [format_param(k, point.params.get(k)) for k in keys]
        order = sorted(point.labels, key=lambda name: (placed.get(name, (99, 99)), name))
        for label in order:
            rows.append(_row(point, label, primary, secondary, shown, placed, by_cell, lost, wide=wide))
            shown = [""] * len(keys)
        for label, failed in point.failures.items():
            if label not in point.labels:
                cell = _failure_cell(failed[0], failures)
                rows.append((*shown, label, ABSENT, cell, *[""] * (4 + len(secondary))))
    return Table(
        title=f"{points[0].suite} · {points[0].board[2]} · {points[0].board[1]}",
        headers=headers,
        rows=tuple(rows),
        notes=(*_few(rows), *_notes(points)),
        failures=tuple(f.text() for f in failures if not _fits(f)),
        leaving=(*reversed(secondary), "grade", "n", "rank"),
    )


def _few(rows: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return what explains ranges where there is one."""
    return (FEW_NOTE,) if any(RANGE_MARK in cell for row in rows for cell in row) else ()


def _fits(failure: Failure) -> bool:
    """Tell whether a row can say all of a failure."""
    first = failure.measurements[0]
    return len(f"{first.status}: {first.reason}") <= MAX_REASON


def _failure_cell(first: Measurement, failures: Iterable[Failure]) -> str:
    """Say in a row why it has no number; what several rows share stands below them once."""
    own = next(f for f in failures if any(m is first for m in f.measurements))
    if own.num_cases > 1 and len(f"{first.status}: {first.reason}") > MAX_REASON:
        return f"{first.status}: see below"
    return shorten(f"{first.status}: {first.reason}", MAX_REASON, placeholder=" …")


def primary_metric(points: Sequence[Point]) -> str:
    """Return the metric that a board is ranked by: the first that the suite compares and that was measured."""
    shown = _headline_shown(points)
    return shown[0] if shown else load_family(points[0].family).default_metrics[0]


def effect_header(points: Sequence[Point]) -> str:
    """Return the heading of a board's effects: ratios or differences, as the primary metric is compared."""
    metric = load_family(points[0].family).metric(primary_metric(points))
    return "× baseline" if metric.compared_by == "ratio" else "− baseline"


def _headline_shown(points: Sequence[Point]) -> list[str]:
    """Return the headline metrics of the suite that at least one point has."""
    names = headline(points[0].run, points[0].suite)
    return [n for n in _metrics_shown(points) if n in names]


def diagnostic_table(points: Sequence[Point]) -> Table | None:
    """Lay out the metrics that a suite compares beside its headline metrics; None where there are none.

    Techniques that have none of them, such as errors of exact ones, have no line.

    Args:
        points: Points of one suite, host class and runner.
    """
    names = [n for n in _metrics_shown(points) if n not in headline(points[0].run, points[0].suite)]
    if not names:
        return None
    keys = varying_params(points)
    rows = [
        (
            *(format_param(k, point.params.get(k)) for k in keys),
            label,
            *(_cell_text(point, point.cells.get((label, name))) for name in names),
        )
        for point in points
        for label in point.labels
        if any((label, name) in point.cells for name in names)
    ]
    return Table(
        title=f"{points[0].suite}: diagnostic metrics",
        headers=(*keys, "technique", *names),
        rows=tuple(rows),
        notes=_few(rows),
        leaving=tuple(reversed(names[1:])),
    )


def suite_tables(
    points: Sequence[Point], comparisons: Iterable[Comparison], *, wide: bool = False
) -> list[Table]:
    """Return the tables of some points: of each suite the headline metrics, then the diagnostic ones, if any."""
    found = list(comparisons)
    tables: list[Table | None] = []
    for suite in dict.fromkeys(p.suite for p in points):
        own = [p for p in points if p.suite == suite]
        tables += [board_table(own, found, wide=wide), diagnostic_table(own)]
    return [table for table in tables if table is not None]


def _metrics_shown(points: Sequence[Point]) -> list[str]:
    """Return the metrics that the suite compares and that at least one point has."""
    names = list(compared(points[0].run, points[0].suite))
    present = {m for p in points for m in p.metrics()}
    return [n for n in names if n in present]


def _row(
    point: Point,
    label: str,
    primary: str,
    secondary: Sequence[str],
    shown: Sequence[str],
    placed: Mapping[str, tuple[int, int]],
    by_cell: Mapping[tuple[int, str, str], Comparison],
    lost: Mapping[tuple[int, str], Loss],
    *,
    wide: bool,
) -> tuple[str, ...]:
    cell = point.cells.get((label, primary))
    comparison = by_cell.get((id(point), label, primary))
    value = _cell_text(point, cell)
    others = [_cell_text(point, point.cells.get((label, name))) for name in secondary]
    count = len(cell.values) if cell else 0
    effect = "baseline" if label == point.baseline else ABSENT
    verdict = ""
    if comparison is not None:
        effect = effect_text(comparison)
        verdict = qualified(comparison, lost.get((id(point), label)), wide=wide)
    return (
        *shown,
        label,
        format_rank(placed.get(label)),
        value,
        effect,
        verdict,
        *others,
        str(count),
        point.grade(label, primary),
    )


def _cell_text(point: Point, cell: Cell | None) -> str:
    if cell is None:
        return ABSENT
    return value_text(point, cell.label, cell.metric)


def value_text(point: Point, label: str, metric: str) -> str:
    """Write a technique's value at a point with what its launches tell of it."""
    bounds = load_family(point.family).metric(metric).range_of_values
    return format_estimate(point.estimate(label, metric), point.cells[(label, metric)].unit, bounds)


def effect_text(comparison: Comparison) -> str:
    """Write how a technique differs from its baseline."""
    bounds = load_family(comparison.point.family).metric(comparison.metric).range_of_values
    return format_effect(comparison.effect, comparison.kind, bounds, verdict=comparison.verdict.name)


def _notes(points: Sequence[Point]) -> list[str]:
    counts = [len(c.values) for p in points for c in p.cells.values()]
    notes = []
    grades = {grade_of(p.run, len(c.values), flags=c.flags) for p in points for c in p.cells.values()}
    own = [(p.run, c) for p in points if p.run.imported_from is None for c in p.cells.values()]
    causes = dict.fromkeys(cause for run, c in own for cause in causes_of_c(run, len(c.values), c.flags))
    notes += [f"grade C: exploratory: {'; '.join(causes)}"] if causes else []
    notes += [f"grade D: {GRADES['D']}"] if "D" in grades else []
    without = {p.run.code["reason"] for p in points if p.run.code.get("reason") and not p.run.imported_from}
    notes += [f"no commit, so grade C at best: {reason}" for reason in sorted(map(str, without))]
    played = dict.fromkeys(name for p in points for _, name in p.cells if is_virtual(p.family, name))
    notes += [f"virtual time, which no clock has measured: {', '.join(played)}"] if played else []
    notes += burst_note(points)
    busy = dict.fromkeys(c.busy for p in points for c in p.cells.values() if c.busy)
    notes += [f"machine busy: {who}" for who in list(busy)[:MOST_BUSY]]
    for flag, meaning in FLAGS.items():
        flagged = sum(1 for p in points for c in p.cells.values() if flag in c.flags)
        if flagged:
            notes.append(f"{flagged} of {len(counts)} series are {meaning}")
    lost = Counter(
        (m.suite, label, m.status, m.launch, p.block)
        for p in points
        for label, failed in p.failures.items()
        if label in p.labels
        for m in failed
    )
    if lost:
        notes.append(
            f"{number_of(len(lost), 'launch')} of techniques that are shown gave no number: "
            "see below, or the run's page"
        )
    return notes


def is_virtual(family: str, metric: str) -> bool:
    """Tell whether a metric is a time that a model plays."""
    return load_family(family).metric(metric).clock == "virtual"


def comparison_table(comparisons: Sequence[Comparison], *, wide: bool = False) -> Table:
    """Lay out comparisons of techniques with their baselines, one a row."""
    points = [c.point for c in comparisons]
    keys = varying_params(points) if points else []
    headers = ("suite", *keys, "metric", "technique", "value", "baseline", "effect", "q", "verdict")
    rows = [
        (
            c.point.suite,
            *(format_param(k, c.point.params.get(k)) for k in keys),
            c.metric,
            c.label,
            value_text(c.point, c.label, c.metric),
            value_text(c.point, c.point.baseline, c.metric),
            effect_text(c),
            ABSENT if c.q_value is None else f"{c.q_value:.2g}",
            verdict_text(c, wide=wide),
        )
        for c in comparisons
    ]
    return Table(
        title="techniques against their baselines",
        headers=headers,
        rows=tuple(rows),
        notes=_few(rows),
        leaving=("q", *(["suite"] if len({c.point.suite for c in comparisons}) == 1 else []), "baseline"),
    )


def effect_in_words(c: RunComparison) -> str:
    """Write a ratio as it is, and a difference as one: a column of both would be read as ratios."""
    text = format_effect(c.effect, c.kind, c.bounds, verdict=c.verdict.name)
    return text if c.kind == "ratio" or c.effect.method == "constant" else f"difference {text}"


def run_comparison_table(
    comparisons: Sequence[RunComparison], left: str, right: str, *, wide: bool = False
) -> Table:
    """Lay out the series that two runs share."""
    keys = sorted({k for c in comparisons for k in c.params if k not in HIDDEN_PARAMS})
    keys = [k for k in keys if len({str(c.params.get(k)) for c in comparisons}) > 1]
    headers = ("suite", *keys, "metric", "technique", "left against right", "q", "verdict", left, right)
    rows = [
        (
            c.suite,
            *(format_param(k, c.params.get(k)) for k in keys),
            c.metric,
            c.label,
            effect_in_words(c),
            ABSENT if c.q_value is None else f"{c.q_value:.2g}",
            verdict_text(c, wide=wide),
            format_estimate(c.left, c.unit, c.bounds),
            format_estimate(c.right, c.unit, c.bounds),
        )
        for c in comparisons
    ]
    notes = (*_few(rows), "the runs were not interleaved: drift between them is not in the intervals")
    return Table(title="run against run", headers=headers, rows=tuple(rows), notes=notes, leaving=("q",))
