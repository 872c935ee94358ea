"""What to take: the best technique at every size, on every link, with every number of ranks, a table for a suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.analysis.compare import Comparison
from paceline.analysis.points import Point
from paceline.report.boards.standing import Board
from paceline.report.html import Cell, Grid
from paceline.report.layout import ChoiceSpec, layout_of
from paceline.report.tables.quality import losses, quality_ranks
from paceline.report.tables.results import format_param, primary_metric
from paceline.report.words.estimates import ABSENT
from paceline.report.words.names import metric_label, param_label

MOST_NAMED = 2
"""Techniques that cannot be told apart, and are named; more are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One suite's table."""

    suite: str
    description: str
    metric: str
    """By what the best is the best."""
    baseline: str
    grid: Grid
    boards: tuple[tuple[str, str], ...]
    """Runner and page of each board."""
    paid: bool
    """Whether the baseline alone keeps its quality, so that there is nothing to choose but a price."""


def choices(
    family: str, boards: Sequence[Board], of: Callable[[Board], Sequence[Comparison]]
) -> list[Choice]:
    """Return a table for each suite of a family that varies what one chooses by.

    Args:
        family: Its name.
        boards: All boards of the site.
        of: Returns a board's comparisons.
    """
    spec = layout_of(family).choice
    offered = offers(family, boards)
    return [_choice(suite, offered[suite], spec, of) for suite in sorted(offered)] if spec else []


def offers(family: str, boards: Sequence[Board]) -> dict[str, list[Board]]:
    """Return the suites of a family that vary what one chooses by, each with its boards."""
    spec = layout_of(family).choice
    own: dict[str, list[Board]] = {}
    for board in boards if spec else ():
        if board.family == family:
            own.setdefault(board.suite, []).append(board)
    return {suite: of_suite for suite, of_suite in own.items() if spec and len(_values(of_suite, spec)) > 1}


def _values(boards: Sequence[Board], spec: ChoiceSpec) -> list[Any]:
    """Return the values that stand side by side, sorted; none where a point has none."""
    values = {p.params.get(spec.columns) for b in boards for p in b.points if p.cells}
    return [] if None in values else sorted(values, key=lambda v: (isinstance(v, str), v))


def _choice(
    suite: str, boards: Sequence[Board], spec: ChoiceSpec, of: Callable[[Board], Sequence[Comparison]]
) -> Choice:
    points, columns = [p for b in boards for p in b.points if p.cells], _values(boards, spec)
    metric = primary_metric(points)
    rows_by = [name for name in spec.rows if len({str(p.params.get(name)) for p in points}) > 1]
    others = sorted(
        name
        for name in {key for p in points for key in p.params}
        if name not in (spec.columns, *spec.rows) and len({str(p.params.get(name)) for p in points}) > 1
    )
    machines = len({b.host_class for b in boards}) > 1
    lines: dict[tuple[str, ...], dict[Any, Cell]] = {}
    kept: set[str] = set()
    for board in boards:
        comparisons = [c for c in of(board) if c.metric == metric]
        lost = losses(of(board))
        effects = {(id(c.point), c.label): c for c in comparisons}
        for point in board.points:
            if not point.cells:
                continue
            place = [board.runner, *([board.host_class] if machines else [])]
            told = [format_param(name, point.params.get(name)) for name in (*rows_by, *others)]
            kept.update(label for label in point.labels if (id(point), label) not in lost)
            cell = _cell(board, point, quality_ranks(point, metric, lost), effects)
            lines.setdefault((*place, *told), {})[point.params.get(spec.columns)] = cell
    heads = ["runner", *(["machine"] if machines else []), *(param_label(n) for n in (*rows_by, *others))]
    rows = tuple(
        (
            *(Cell(text=text, kind="text") for text in line),
            *(lines[line].get(value, Cell(text=ABSENT, kind="text quiet")) for value in columns),
        )
        for line in sorted(lines, key=_natural)
    )
    headers = (*heads, *(format_param(spec.columns, value) for value in columns))
    return Choice(
        suite=suite,
        description=boards[0].description,
        metric=metric_label(metric),
        baseline=points[0].baseline,
        grid=Grid(title=suite, headers=tuple(Cell(text=h, kind="text") for h in headers), groups=(rows,)),
        boards=tuple((b.runner, f"../boards/{b.slug}.html") for b in boards),
        paid=kept <= {p.baseline for p in points},
    )


def _natural(line: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """Return what sorts texts with numbers in them as numbers."""
    return tuple((int(t), "") if t.isdigit() else (-1, t) for t in line)


def _cell(
    board: Board,
    point: Point,
    placed: Mapping[str, tuple[int, int]],
    effects: Mapping[tuple[int, str], Comparison],
) -> Cell:
    """Say who is best at a point, and by how much, or how many cannot be told apart."""
    href = f"../cases/{board.point_slug(point)}.html"
    first = sorted(name for name, (low, _) in placed.items() if low == 1)
    if not first:
        return Cell(text=ABSENT, href=href, kind="text quiet")
    if len(first) > 1:
        text = f"{' or '.join(first)}" if len(first) <= MOST_NAMED else f"{len(first)} alike"
        return Cell(text=text, href=href, kind="text even")
    effect = effects.get((id(point), first[0]))
    by = f", {effect.effect.value:.2g} ×" if effect is not None and effect.kind == "ratio" else ""
    return Cell(text=f"{first[0]}{by}", href=href, kind="text good" if by else "text")
