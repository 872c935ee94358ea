"""Every board and the claims as files for other programs: CSV for spreadsheets, JSON and Parquet for the rest.

A row holds one metric of one technique at one point, in base units, with its interval and its effect against the
baseline. Texts that a spreadsheet would take for a formula get an apostrophe in front in CSV; in JSON they are as the
record has them.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.compare import Comparison
from paceline.analysis.points import Point
from paceline.report.boards.page import estimate
from paceline.report.boards.standing import Board
from paceline.report.exports.formats import csv_cell
from paceline.report.html import Cell, Grid, rows_grid
from paceline.report.words.estimates import ABSENT

Row = dict[str, Any]
KINDS = ("CSV", "JSON", "Parquet", "badge")
"""Forms of a table."""


def board_rows(board: Board, comparisons: Sequence[Comparison]) -> list[Row]:
    """Return the rows of a board, in the order of its points."""
    effects = {(id(c.point), c.label, c.metric): c for c in comparisons}
    return [
        _row(board, point, label, metric, effects.get((id(point), label, metric)))
        for point in board.points
        for metric in point.metrics()
        for label in point.labels
        if (label, metric) in point.cells
    ]


def _row(board: Board, point: Point, label: str, metric: str, effect: Comparison | None) -> Row:
    cell, found = point.cells[(label, metric)], estimate(point, label, metric)
    row: Row = {
        "suite": board.suite,
        "suite_version": point.suite_version,
        "runner": board.runner,
        "host_class": board.host_class,
        "image_class": board.image_class,
        "technique": cell.technique,
        "label": label,
        "role": cell.role,
        "metric": metric,
        "unit": cell.unit,
        "better": cell.better,
        "contract_id": cell.contract_id,
        "value": finite(found.value),
        "low": finite(found.low),
        "high": finite(found.high),
        "launches": len(cell.values),
        "grade": point.grade(label, metric),
        "baseline": point.baseline,
        "effect_kind": effect.kind if effect else None,
        "effect": finite(effect.effect.value) if effect else None,
        "effect_low": finite(effect.effect.low) if effect else None,
        "effect_high": finite(effect.effect.high) if effect else None,
        "q_value": finite(effect.q_value) if effect else None,
        "verdict": effect.verdict.name if effect else None,
        "run_id": point.run.run_id,
    }
    return row | {f"param.{name}": value for name, value in sorted(point.params.items())}


def claim_rows(claims: Sequence[ClaimResult]) -> list[Row]:
    """Return a row for each claim."""
    return [
        {
            "paper": c.paper,
            "suite": c.suite,
            "claim": c.claim_id,
            "quote": c.quote,
            "scope": c.scope,
            "whose": c.whose,
            "paper_number": c.said.get("number"),
            "paper_opponent": c.against.get("paper"),
            "metric": c.metric,
            "technique": c.technique,
            "versus": c.versus,
            "expected": c.expectation,
            "found": finite(c.worst.value) if c.worst else None,
            "low": finite(c.worst.low) if c.worst else None,
            "high": finite(c.worst.high) if c.worst else None,
            "verdict": c.verdict,
            "reason": c.reason,
            "stands_for": "reproduction" if c.reproduces else "conformance",
            "null": c.null.technique or "no effect" if c.null else None,
            "null_verdict": c.null.verdict if c.null else None,
            "premise": c.premise,
            "settled_by": ", ".join(c.settled_by),
            "grade": c.grade,
            "run_id": c.run_id,
        }
        for c in claims
    ]


def finite(value: float | None) -> float | None:
    """Return a number that JSON can hold, else None."""
    return value if value is not None and math.isfinite(value) else None


def csv_text(rows: Sequence[Row]) -> str:
    """Return rows as CSV with all columns that any of them has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.writer(out)  # RFC 4180: lines end with CR LF, and texts with either are quoted
    writer.writerow([csv_cell(name) for name in columns])
    writer.writerows([[csv_cell(row.get(name)) for name in columns] for row in rows])
    return out.getvalue()


def json_text(rows: Sequence[Row], **facts: Any) -> str:
    """Return facts and rows as one JSON document, a line for each row."""
    encode = json.JSONEncoder(sort_keys=True, allow_nan=False).encode
    head = encode(facts)[:-1] + (", " if facts else "")
    lines = ",\n".join(map(encode, rows))
    return f'{head}"rows": [\n{lines}\n]}}\n' if rows else f'{head}"rows": []}}\n'


def parquet_bytes(rows: Sequence[Row]) -> bytes:
    """Return rows as Parquet: a column has one type, and is text where its values have several."""
    import pyarrow as pa  # noqa: PLC0415 - heavy, and only needed here
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        kinds = {type(v) for v in values if v is not None}
        one = next(iter(kinds)) if len(kinds) == 1 else float if kinds == {int, float} else str
        if one is int and any(v is not None and not -(1 << 63) <= v < 1 << 63 for v in values):
            one = str
        types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
        if one not in types:
            values = [v if v is None else _inert(v) for v in values]
        elif one is float:
            values = [None if v is None else float(v) for v in values]
        columns[name] = pa.array(values, types.get(one, pa.string()))
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return sink.getvalue()


def _inert(value: Any) -> str:
    """Return a value as text that UTF-8 can hold, whatever a record says."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text.encode("utf-8", "backslashreplace").decode()


def badge_grid(found: Sequence[tuple[str, str, str]]) -> Grid:
    """List the badges of papers: name, verdict, path."""
    rows = [
        [
            Cell(text=name, kind="text"),
            Cell(text=verdict, kind="text"),
            Cell(text="SVG", href=path, kind="text"),
        ]
        for name, verdict, path in found
    ]
    return rows_grid("badges of papers", ("paper", "verdict", "badge"), rows)


def file_grid(found: Sequence[tuple[str, str, Mapping[str, str], int]]) -> Grid:
    """List tables: name, what it holds, format → path, number of rows."""
    rows: list[Sequence[Cell | str]] = []
    for name, what, paths, count in found:
        links = [
            Cell(text=kind if kind in paths else ABSENT, href=paths.get(kind), kind="text") for kind in KINDS
        ]
        rows.append([Cell(text=name, kind="text"), Cell(text=what, kind="text broken"), str(count), *links])
    return rows_grid("tables of this site", ("table", "measured on", "rows", *KINDS), rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """A table of a site, whose rows are made when somebody asks."""

    path: str
    """Without an ending."""
    name: str
    place: str
    """Where it was measured."""
    num_rows: int
    rows: Callable[[], list[Row]]
    badge: str = ""
    board: Board | None = None
    """The board whose table it is."""


def data_tables(
    boards: Iterable[tuple[Board, Sequence[Comparison]]], claims: Sequence[ClaimResult]
) -> list[DataTable]:
    """Return every table of a site: one for each board with its comparisons, and one of all claims."""
    tables = [
        DataTable(
            path=f"data/{board.slug}",
            name=board.suite,
            place=f"{board.runner}, {board.host_class}",
            num_rows=sum(len(point.cells) for point in board.points),
            rows=partial(board_rows, board, comparisons),
            badge=f"badges/{board.slug}.svg",
            board=board,
        )
        for board, comparisons in boards
    ]
    if claims:
        rows = partial(claim_rows, claims)
        tables.append(
            DataTable(path="data/claims", name="claims", place="all suites", num_rows=len(claims), rows=rows)
        )
    return tables
