"""What the first page and the list of boards show: families, hardware, boards, gaps, what came last; and the feed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from paceline.analysis.compare import Comparison
from paceline.base.counting import number_of
from paceline.base.families.family import load_family
from paceline.records.format.record import Run
from paceline.records.store.folder import RunRecord
from paceline.records.store.launches import status_counts
from paceline.report.boards.choosing import offers
from paceline.report.boards.standing import Board
from paceline.report.html import Cell, Grid, rows_grid
from paceline.report.layout import layout_of
from paceline.report.runs.page import counts_text, run_slug
from paceline.report.tables.quality import losses, qualified
from paceline.report.tables.results import format_counts, primary_metric
from paceline.report.words.estimates import ABSENT
from paceline.report.words.names import metric_label

NEWS, FEED = 5, 50
"""Runs on the first page, and in the feed."""
ATOM = "http://www.w3.org/2005/Atom"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyCard:
    """One family, by what one would come to it for."""

    name: str
    question: str
    summary: str
    num_boards: int
    suites: tuple[tuple[str, str], ...]
    """Name and largest board of each suite, of each runner where several measured it."""
    choice: str | None
    """The page that says what is best where."""


def family_cards(boards: Sequence[Board]) -> list[FamilyCard]:
    """Return the families that have a board, each with its suites; a suite leads to its board of most points."""
    found = []
    for name in dict.fromkeys(b.family for b in sorted(boards, key=lambda b: b.family)):
        own = sorted(
            (b for b in boards if b.family == name), key=lambda b: (b.suite, len(b.points), _newest_of(b))
        )
        largest = {(b.suite, b.runner): b for b in own}  # of those with as many points the newest
        runners = Counter(suite for suite, _ in largest)
        suites = (
            (
                (suite.partition("/")[2] or suite) + (f" ({runner})" if runners[suite] > 1 else ""),
                f"boards/{b.slug}.html",
            )
            for (suite, runner), b in sorted(largest.items())
        )
        card = FamilyCard(
            name=name,
            question=layout_of(name).question or f"What was found about {name}?",
            summary=load_family(name).summary,
            num_boards=len(own),
            suites=tuple(suites),
            choice=f"choose/{name}.html" if offers(name, own) else None,
        )
        found.append(card)
    return found


def hardware_sentence(boards: Sequence[Board]) -> str:
    """Say on what everything was measured, and which kind of hardware was not."""
    classes = sorted({b.host_class for b in boards})
    kinds = {str((p.run.device or {}).get("kind", "cpu")) for b in boards for p in b.points}
    on = (
        f"Every result here is from {'one class' if len(classes) == 1 else number_of(len(classes), 'class')} "
        "of machine: "
    )
    on += "; ".join(classes) + "."
    return (
        on
        if kinds != {"cpu"}
        else on + " No accelerator was measured: what holds on one is not known from here."
    )


def hardware_grid(boards: Sequence[Board]) -> Grid:
    """Return machines against families: how many boards and points each has, and the day of the newest."""
    places = sorted({(b.host_class, b.runner, b.image_class or "") for b in boards})
    rows: list[list[Cell | str]] = []
    for place in places:
        own = [b for b in boards if (b.host_class, b.runner, b.image_class or "") == place]
        families = Counter(b.family for b in own)
        rows.append(
            [
                Cell(text=place[0], kind="text"),
                Cell(text=", ".join(part for part in place[1:] if part), kind="text"),
                Cell(text=format_counts(sorted(families.items())), kind="text broken"),
                str(sum(len(b.points) for b in own)),
                Cell(text=max(_newest_of(b) for b in own)[:10], kind="text"),
            ]
        )
    return rows_grid("hardware", ("machine", "runner", "boards", "points", "newest"), rows)


def _newest_of(board: Board) -> str:
    return max(p.run.started for p in board.points)


def coverage_grid(boards: Sequence[Board], suites: Sequence[Mapping[str, Any]]) -> Grid:
    """Return suites by family against runners and hardware: how many points each has where; gaps stay visible."""
    places = sorted({(b.runner, b.host_class, b.image_class or "") for b in boards})
    here = {(b.suite, b.runner, b.host_class, b.image_class or ""): b for b in boards}
    families: dict[str, dict[str, None]] = {}
    for name, family in sorted(
        {*((b.suite, b.family) for b in boards), *((s["suite"], s["family"]) for s in suites)}
    ):
        families.setdefault(family, {})[name] = None
    groups = []
    for family, names in sorted(families.items()):
        rows = []
        for number, name in enumerate(names):
            head = [Cell(text=family, kind="text key", header=True, rows=len(names))] if number == 0 else []
            cells = [_cell(here.get((name, *place))) for place in places]
            rows.append((*head, Cell(text=name.partition("/")[2] or name, kind="text technique"), *cells))
        groups.append(tuple(rows))
    heads = [", ".join(part for part in place if part) for place in places]
    headers = tuple(Cell(text=text, kind="text") for text in ("family", "suite", *heads))
    return Grid(title="points measured, by suite and place", headers=headers, groups=tuple(groups))


def _cell(board: Board | None) -> Cell:
    if board is None:
        return Cell(text=ABSENT, kind="text quiet")
    count = len(board.points)
    text = number_of(count, "point")
    newest = max(p.run.started for p in board.points)[:10]
    return Cell(text=f"{text}, {newest}", href=f"boards/{board.slug}.html", kind="text")


def board_list(
    found: Sequence[tuple[Board, Sequence[Comparison]]], published: Collection[str] = frozenset()
) -> Grid:
    """Return a line for each board, by family: where it was measured, by what it is ranked, how comparisons ended.

    Boards of published runs alone are marked and come last, their families too.
    """
    families: dict[str, list[tuple[Cell, ...]]] = {}

    def place_of(board: Board) -> tuple[object, ...]:
        return board.only_of(published), board.family, board.suite, board.runner

    for board, comparisons in sorted(found, key=lambda f: place_of(f[0])):
        metric = primary_metric(board.points)
        lost = losses(comparisons)
        texts = (qualified(c, lost.get((id(c.point), c.label))) for c in comparisons if c.metric == metric)
        names = Counter(text.partition(" (")[0] for text in texts)
        mark = "published" if board.only_of(published) else None
        place = ", ".join(part for part in (board.runner, board.host_class, board.image_class, mark) if part)
        labels = {name for p in board.points for name in (*p.labels, *p.failures)}
        row = (
            Cell(text=board.suite, href=f"boards/{board.slug}.html", kind="text technique"),
            Cell(text=place, kind="text broken"),
            Cell(text=metric_label(metric), kind="text"),
            Cell(text=board.points[0].baseline, kind="text"),
            Cell(text=str(len(board.points)), kind="num"),
            Cell(text=str(len(labels)), kind="num"),
            Cell(text=format_counts(sorted(names.items())), kind="text broken"),
            Cell(text=max(p.run.started for p in board.points)[:10], kind="text"),
        )
        families.setdefault(board.family, []).append(row)
    groups = tuple(
        tuple(
            (*([Cell(text=family, kind="text key", header=True, rows=len(rows))] if i == 0 else []), *row)
            for i, row in enumerate(rows)
        )
        for family, rows in families.items()
    )
    names_of = (
        "family",
        "suite",
        "measured on",
        "ranked by",
        "baseline",
        "points",
        "techniques",
        "verdicts",
        "newest",
    )
    kinds = ("text", "text", "text", "text", "text", "num", "num", "text", "text")
    headers = tuple(Cell(text=t, kind=k) for t, k in zip(names_of, kinds, strict=True))
    return Grid(title="boards", headers=headers, groups=groups)


def news_grid(records: Sequence[RunRecord]) -> Grid:
    """Return the newest runs."""
    rows: list[Sequence[Cell | str]] = []
    for record in _newest(records, NEWS):
        run = record.run
        rows.append(
            [
                Cell(text=run.started[:10], href=_href(run), kind="text"),
                Cell(text=_suites(run), kind="text prose"),
                str(run.runner.get("name") or ABSENT),
                Cell(text=counts_text(status_counts(record)), kind="text"),
            ]
        )
    return rows_grid("newest runs", ("run", "suites", "runner", "results"), rows)


def _newest(records: Sequence[RunRecord], count: int) -> list[RunRecord]:
    return sorted(records, key=lambda r: (r.run.started, r.run_id), reverse=True)[:count]


def _href(run: Run) -> str:
    return f"runs/{run_slug(run.run_id)}.html"


def _suites(run: Run) -> str:
    names = [str(s.get("suite")) for s in run.suites]
    families: dict[str, int] = {}
    for name in names:
        family = name.partition("/")[0]
        families[family] = families.get(family, 0) + 1
    if len(names) <= 3:
        return ", ".join(names) or ABSENT
    return ", ".join(f"{n} of {family}" for family, n in sorted(families.items()))


def feed(records: Sequence[RunRecord]) -> str:
    """Return the newest runs as an Atom feed (RFC 4287) whose links are relative to it."""
    ElementTree.register_namespace("", ATOM)
    chosen = _newest(records, FEED)
    root = ElementTree.Element(f"{{{ATOM}}}feed")
    _add(root, "title", "Paceline: runs")
    _add(root, "id", "urn:paceline:runs")
    _add(root, "updated", chosen[0].run.started if chosen else "1970-01-01T00:00:00Z")
    _add(_add(root, "author", None), "name", "Paceline")
    for record in chosen:
        run = record.run
        entry = _add(root, "entry", None)
        _add(entry, "title", f"{_suites(run)} on {run.host_class or ABSENT}")
        _add(entry, "id", f"urn:uuid:{run.run_id}")
        _add(entry, "updated", run.started)
        _add(entry, "link", None).set("href", _href(run))
        _add(entry, "summary", counts_text(status_counts(record)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _add(parent: ElementTree.Element, name: str, text: str | None) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, f"{{{ATOM}}}{name}")
    child.text = None if text is None else "".join(c for c in text if c.isprintable())
    return child
