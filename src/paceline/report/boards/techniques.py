"""What the page of a technique shows: its card, its source, every result of it that stands on a board, its claims.

A technique that only records know (somebody else's, or one that has gone) has a page too, without card and source.
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.compare import Comparison
from paceline.analysis.points import Point
from paceline.base.techniques.technique import TechniqueSource
from paceline.report.boards.constants import compared_text
from paceline.report.boards.page import point_name, shown_verdict
from paceline.report.boards.standing import Board, slug
from paceline.report.html import Cell, Grid, body_cell, rows_grid
from paceline.report.tables.quality import losses, qualified
from paceline.report.tables.results import (
    effect_header,
    effect_text,
    primary_metric,
    value_text,
    varying_params,
)
from paceline.report.words.estimates import ABSENT

MAX_ROWS = 1000
"""Results that a page lists; the boards have all."""
READ = {
    "code": "the authors' code",
    "reimplementation": "somebody else's code, since the authors' is not public",
    "paper": "the paper, in the parts named below",
    "catalogue": "the ledger's summary alone: neither paper nor code",
}
"""What the nearest source of a fidelity card is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A technique under one name of a board, with or without numbers."""

    board: Board
    label: str
    points: tuple[Point, ...]
    """Those where it was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """A technique, as far as it is known."""

    family: str
    name: str
    source: TechniqueSource | None = None
    uses: tuple[Use, ...] = field(default=())

    @property
    def href(self) -> str:
        """Path of its page."""
        return f"techniques/{slug(f'{self.family} {self.name}', 'technique')}.html"

    @property
    def num_points(self) -> int:
        """Points of boards at which it was tried."""
        return sum(len(use.points) for use in self.uses)

    @property
    def labels(self) -> frozenset[str]:
        """Its names on boards."""
        return frozenset({self.name, *(use.label for use in self.uses)})


def portraits(boards: Sequence[Board], sources: Iterable[TechniqueSource]) -> list[Portrait]:
    """Return every technique that is known here or stands on a board, by family and name."""
    known = {(s.info.family, s.info.name): s for s in sources}
    uses: dict[tuple[str, str], list[Use]] = {}
    for board in boards:
        tried: dict[tuple[str, str], list[Point]] = {}
        for point in board.points:
            for name, label in sorted(_names(point)):
                tried.setdefault((name, label), []).append(point)
        for (name, label), points in tried.items():
            uses.setdefault((board.family, name), []).append(
                Use(board=board, label=label, points=tuple(points))
            )
    return [
        Portrait(
            family=family,
            name=name,
            source=known.get((family, name)),
            uses=tuple(uses.get((family, name), ())),
        )
        for family, name in sorted({*known, *uses})
    ]


def _names(point: Point) -> set[tuple[str, str]]:
    """Return (technique, label) of everything that was tried at a point."""
    found = {(cell.technique, label) for (label, _), cell in point.cells.items()}
    return found | {(m.technique, label) for label, failed in point.failures.items() for m in failed}


def technique_list(found: Sequence[Portrait], family: str, papers: Container[str]) -> Grid:
    """List the techniques of a family; papers are linked when they are among those of the ledger."""
    rows: list[list[Cell | str]] = []
    for one in found:
        if one.family != family:
            continue
        info = one.source.info if one.source else None
        rows.append(
            [
                Cell(text=one.name, href=one.href, kind="text technique"),
                Cell(text=info.summary if info else "not in this installation", kind="text prose"),
                Cell(text=", ".join(info.implements) if info else ABSENT, kind="text broken"),
                _paper(info.paper if info else None, papers),
                str(one.num_points),
            ]
        )
    return rows_grid(family, ("technique", "what it is", "for", "paper", "points"), rows)


def _paper(name: str | None, papers: Container[str]) -> Cell:
    return Cell(text=name or ABSENT, href=f"claims.html#{name}" if name in papers else None, kind="text")


def result_grids(
    one: Portrait, comparisons: Mapping[int, Sequence[Comparison]], root: str
) -> list[tuple[Board, Grid]]:
    """Return for every board a technique's primary metric at each point, and its effect against the baseline."""
    boards = {id(use.board): use.board for use in one.uses}
    found = []
    for key, board in boards.items():
        uses = [use for use in one.uses if id(use.board) == key]
        metric, keys = primary_metric(board.points), varying_params(board.points)
        rows = [
            _row(use, point, metric, keys, comparisons.get(id(point), ()), root)
            for use in uses
            for point in use.points
        ]
        headers = ("point", "as", metric, effect_header(board.points), "verdict", "n", "grade")
        notes = [f"{len(rows) - MAX_ROWS} more stand on the board"] if len(rows) > MAX_ROWS else []
        title = f"{board.suite} on {board.host_class}"
        found.append((board, rows_grid(title, headers, rows[:MAX_ROWS], notes)))
    return found


def _row(
    use: Use, point: Point, metric: str, keys: Sequence[str], found: Sequence[Comparison], root: str
) -> list[Cell | str]:
    board, label = use.board, use.label
    cell = point.cells.get((label, metric))
    own = next((c for c in found if c.label == label and c.metric == metric), None)
    effect, verdict = "baseline" if label == point.baseline else ABSENT, ""
    if own is not None:
        effect, verdict = (
            effect_text(own),
            shown_verdict(qualified(own, losses(found).get((id(point), label))), own),
        )
    if cell is None:
        value = next((m.status for m in point.failures.get(label, ())), ABSENT)
    else:
        value = value_text(point, label, metric)
    href = f"{root}cases/{board.point_slug(point)}.html"
    return [
        Cell(text=point_name(point, keys), href=href, kind="text prose"),
        Cell(text=label, kind="text"),
        Cell(text=value, kind="num"),
        Cell(text=effect, kind="num"),
        body_cell("verdict", verdict, "text"),
        str(len(cell.values) if cell else 0),
        Cell(text=point.grade(label, metric) if cell else ABSENT, kind="text"),
    ]


def facts(one: Portrait) -> list[tuple[str, str]]:
    """Return what a technique says of itself in its registration."""
    if one.source is None:
        return []
    info, source = one.source.info, one.source
    needs = [
        f"{name.replace('_', ' ')}: {', '.join(map(str, value)) if isinstance(value, tuple) else value}"
        for name, value in ((n, getattr(info.requires, n)) for n in type(info.requires).__dataclass_fields__)
        if value not in (None, False, (), 1)
    ]
    return [
        ("implements", ", ".join(info.implements)),
        ("options", ", ".join(f"{k} = {v}" for k, v in info.options.items()) or "none"),
        ("properties", ", ".join(f"{k}: {v}" for k, v in info.properties.items()) or "none"),
        ("needs", "; ".join(needs) or "nothing beyond its family"),
        ("module", source.module),
        ("sha256 of the file", source.sha256),
    ]


def card(one: Portrait) -> str:
    """Return the module's docstring: method, algorithm, cost, limits."""
    return inspect.cleandoc(one.source.card) if one.source else ""


def fidelity_facts(one: Portrait) -> list[tuple[str, str]]:
    """Return what a technique of a paper was held against, where it departs from that, and what checks it."""
    card = one.source.info.fidelity if one.source else None
    if card is None:
        return []
    return [
        ("read for this card", READ[card.source.read]),
        ("paper", card.source.paper),
        ("code", card.source.code),
        *(("deviation", sentence) for sentence in card.deviations),
        *(("checked by", test) for test in card.checked_by),
    ]


def constants_grid(one: Portrait) -> Grid | None:
    """Return the constants of a technique's card beside the authors'; None where it has none."""
    card = one.source.info.fidelity if one.source else None
    if card is None or not card.constants:
        return None
    rows: list[list[Cell | str]] = [
        [
            Cell(text=name, kind="text"),
            Cell(text=repr(c.here), kind="text"),
            Cell(text=c.authors, kind="text prose"),
            Cell(text=c.source, kind="text broken"),
            Cell(text=compared_text(c), kind="text prose"),
        ]
        for name, c in card.constants.items()
    ]
    headers = ("constant", "here", "the authors'", "compared with", "which is")
    return rows_grid("constants", headers, rows)


def source_text(one: Portrait) -> str:
    """Return the file that implements a technique; empty where only records know it."""
    return one.source.path.read_text(encoding="utf-8") if one.source else ""


def claims_of(one: Portrait, claims: Sequence[ClaimResult]) -> list[ClaimResult]:
    """Return the claims that measure a technique under one of its names."""
    return [c for c in claims if c.suite.split("/")[0] == one.family and c.technique in one.labels]


def links(found: Sequence[Portrait], board: Board, root: str) -> list[tuple[str, str]]:
    """Return (name, path) of the techniques of a board."""
    return [(one.name, root + one.href) for one in found if any(use.board is board for use in one.uses)]
