"""What comparisons could have seen: how launches scatter, and the least effect that would have been found."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from paceline.analysis.compare import Comparison
from paceline.analysis.points import Point
from paceline.base.units import format_quantity
from paceline.report.boards.page import point_name
from paceline.report.boards.standing import Board
from paceline.report.html import Cell, Grid, body_cell, rows_grid
from paceline.report.tables.results import format_counts, primary_metric, varying_params
from paceline.report.words.estimates import ABSENT, verdict_text
from paceline.stats.verdicts import least_margin, minimum_detectable

VIRTUAL = "virtual_"
"""How the names of times begin that no clock of a machine has told."""


def primary(board: Board, comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons of the metric that a board is ranked by."""
    metric = primary_metric(board.points)
    return [c for c in comparisons if c.metric == metric]


def series_grid(board: Board, comparisons: Sequence[Comparison], root: str) -> Grid:
    """Return for every comparison of a board its spread over launches and the least effect that it could find."""
    keys = varying_params(board.points)
    rows: list[Sequence[Cell | str]] = []
    for c in primary(board, comparisons):
        rows.append(
            [
                Cell(text=point_name(c.point, keys), href=_href(board, c.point, root), kind="text prose"),
                c.label,
                str(c.effect.num_launches),
                _size(c.effect.spread, c),
                _size(minimum_detectable(c.effect, c.kind), c),
                _size(c.margin or None, c),
                _size(least_margin(c.effect, c.kind), c),
                body_cell("verdict", verdict_text(c, wide=True), "text"),
            ]
        )
    headers = (
        "point",
        "technique",
        "launches",
        "spread",
        "least effect",
        "margin",
        "least margin",
        "verdict",
    )
    return rows_grid(f"{board.suite} on {board.host_class}: {primary_metric(board.points)}", headers, rows)


def _href(board: Board, point: Point, root: str) -> str:
    return f"{root}cases/{board.point_slug(point)}.html"


def _size(value: float | None, c: Comparison) -> str:
    if value is None:
        return ABSENT
    return f"{value:.2%}" if c.kind == "ratio" else format_quantity(value, c.unit)


def summary_grid(found: Sequence[tuple[Board, Sequence[Comparison]]]) -> Grid:
    """Return a line for each board: how many comparisons, what the middle one could find, how they ended."""
    rows: list[Sequence[Cell | str]] = []
    for board, comparisons in found:
        own = primary(board, comparisons)
        least = [
            d for c in own if c.kind == "ratio" and (d := minimum_detectable(c.effect, c.kind)) is not None
        ]
        margins = [d for c in own if c.kind == "ratio" and (d := least_margin(c.effect, c.kind)) is not None]
        names = Counter(verdict_text(c) for c in own)
        ends = (ABSENT, ABSENT)
        if least:
            ends = f"{statistics.median(least):.1%}", f"{min(least):.1%} to {max(least):.1%}"
        rows.append(
            [
                Cell(text=board.suite, href=f"boards/{board.slug}.html#noise", kind="text"),
                board.runner,
                board.host_class,
                primary_metric(board.points),
                str(len(own)),
                *ends,
                f"{statistics.median(margins):.1%}" if margins else ABSENT,
                Cell(text=format_counts(sorted(names.items())), kind="text"),
            ]
        )
    headers = (
        "suite",
        "runner",
        "hardware",
        "metric",
        "comparisons",
        "least effect, median",
        "range",
        "least margin, median",
        "verdicts",
    )
    return rows_grid("noise by board", headers, rows)


def machine_grid(found: Sequence[tuple[Board, Sequence[Comparison]]]) -> Grid:
    """Return a line for each machine and runner: what its comparisons of times could find, of all suites together.

    Virtual times scatter by what is drawn, and say nothing of a machine.
    """
    least: dict[tuple[str, str], list[float]] = {}
    for board, comparisons in found:
        for c in primary(board, comparisons):
            timed = c.kind == "ratio" and c.unit == "s" and not c.metric.startswith(VIRTUAL)
            size = minimum_detectable(c.effect, c.kind) if timed else None
            if size is not None:
                least.setdefault((board.host_class, board.runner), []).append(size)
    rows: list[Sequence[Cell | str]] = []
    for (host, runner), sizes in sorted(least.items()):
        ordered = sorted(sizes)
        most = ordered[min(len(ordered) - 1, round(0.9 * (len(ordered) - 1)))]
        rows.append(
            [
                Cell(text=host, kind="text"),
                Cell(text=runner, kind="text"),
                str(len(ordered)),
                f"{statistics.median(ordered):.1%}",
                f"{most:.1%}",
            ]
        )
    headers = ("machine", "runner", "comparisons of times", "least effect, median", "nine in ten below")
    return rows_grid("noise by machine", headers, rows)
