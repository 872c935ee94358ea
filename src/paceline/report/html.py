"""HTML from templates: the environment that escapes everything, tables as marked-up cells, and one-page reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from paceline import __version__
from paceline.base.counting import number_of
from paceline.report.claims.text import PAPERS_NUMBER, STATEMENT
from paceline.report.tables.quality import BUT_WORSE
from paceline.report.tables.results import Table
from paceline.spec import content

STYLE = "style.css"
SCRIPT = "site.js"
ON_DEMAND = {
    "search.js": "search.js",
    "export.js": "export.js",
    "charts.js": "charts.js",
    "uplot.js": "vendor/uplot/uPlot.iife.min.js",
    "uplot.css": "vendor/uplot/uPlot.min.css",
}
"""What the script reads when a reader asks for it: name in the site → file among the templates."""
VERDICT_CLASSES = {
    "faster": "good",
    "better": "good",
    "reproduced": "good",
    "conforms": "good",
    "slower": "bad",
    "worse": "bad",
    "not reproduced": "bad",
    "does not conform": "bad",
    "incomparable": "bad",
    "invalid": "bad",
    "NO": "bad",
    "equivalent": "even",
    "partly": "even",
    "partly tested": "even",
    "conforms in part": "even",
    "consistent with a model": "even",
    "not testable here": "quiet",
}
"""Class of the style sheet for each verdict; the rest stays quiet."""
NO_DIFFERENCE = "no difference above "
"""Begins what pages write for the verdict ``equivalent``: the margin says what is known."""
TEXT_COLUMNS = frozenset(
    ("technique", "verdict", "suite", "metric", "what", "why", "reason", "status", "paper", "run", "file")
) | frozenset(("claim", "found", "found, and our scale", "id", "results", "sha256", STATEMENT, PAPERS_NUMBER))
"""Columns that stay on the left even when a text begins with a digit."""


class Cell(NamedTuple):
    """One cell of an HTML table; its text is escaped by the template. A site has millions, and a tuple is soon made."""

    text: str
    href: str | None = None
    kind: str = ""
    """Classes of the style sheet."""
    graphic: Markup | None = None
    header: bool = False
    rows: int = 1
    columns: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table for the template: groups of rows of cells."""

    title: str
    headers: tuple[Cell, ...]
    groups: tuple[tuple[tuple[Cell, ...], ...], ...]
    notes: tuple[str, ...] = ()


@cache
def environment() -> Environment:
    """Return the template environment, whose templates are compiled once in a process.

    Every value is escaped, a missing one is an error.
    """
    made = Environment(
        loader=FileSystemLoader(content.report_templates() / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"version": __version__, "table_rows": table_rows, "number_of": number_of}
    return made


def style_sheet() -> str:
    """Return the text of the one style sheet."""
    return (content.report_templates() / STYLE).read_text(encoding="utf-8")


def script() -> str:
    """Return the text of the one script, without which every page is complete."""
    return (content.report_templates() / SCRIPT).read_text(encoding="utf-8")


def on_demand() -> dict[str, str]:
    """Return name and text of each file that the script reads when a reader asks for what needs it."""
    folder = content.report_templates()
    return {name: (folder / path).read_text(encoding="utf-8") for name, path in ON_DEMAND.items()}


def page_of_tables(title: str, tables: Sequence[Table]) -> str:
    """Return one self-contained HTML page of tables, style sheet included."""
    grids = [plain_grid(table) for table in tables]
    template = environment().get_template("tables.html")
    return template.render(title=title, grids=grids, style=Markup(style_sheet()))


def table_rows(grid: Grid) -> Markup:
    """Write the groups of a grid as table bodies: what a template would, in a tenth of the time."""
    mixed = grid.headers[0].text != "technique"
    parts: list[str] = []
    for rows in grid.groups:
        parts.append(f"<tbody{_place(grid, rows)}>\n")
        for row in rows:
            more = ' class="more"' if mixed and row[0].kind.endswith("technique") else ""
            parts.append(f"<tr{more}>{''.join(map(_cell_markup, row))}</tr>\n")
        parts.append("</tbody>\n")
    return Markup("".join(parts))


def _place(grid: Grid, rows: Sequence[Sequence[Cell]]) -> str:
    """Return what tells a group of rows apart, for screens that have no room for its columns."""
    heads = zip(grid.headers, rows[0] if rows else (), strict=False)
    said = [f"{head.text} {cell.text}" for head, cell in heads if cell.header and head.kind.endswith(" key")]
    return f' data-place="{_escaped(", ".join(said))}"' if said else ""


def _cell_markup(cell: Cell) -> str:
    text, href, kind, graphic, header, rows, columns = cell
    if not (href or graphic or header) and rows == columns == 1:
        return _plain_cell(text, kind)
    tag = "th" if header else "td"
    attributes = f' class="{_escaped(kind)}"' if kind else ""
    if header:
        attributes += ' scope="rowgroup"'
    if rows > 1:
        attributes += f' rowspan="{rows}"'
    if columns > 1:
        attributes += f' colspan="{columns}"'
    inner = ""
    if href:
        inner = f'<a href="{_escaped(href)}">{_escaped(text)}</a>'
    elif text:
        inner = f"<span>{_escaped(text)}</span>"
    return f"<{tag}{attributes}>{inner}{escape(graphic) if graphic else ''}</{tag}>"


@lru_cache(maxsize=1 << 15)
def _plain_cell(text: str, kind: str) -> str:
    attributes = f' class="{_escaped(kind)}"' if kind else ""
    return f"<td{attributes}><span>{_escaped(text)}</span></td>" if text else f"<td{attributes}></td>"


@lru_cache(maxsize=1 << 14)
def _escaped(text: str) -> str:
    """Escape a text; cells repeat the same few ones. What is markup already would be escaped again."""
    return str(escape(str(text)))


def plain_grid(table: Table) -> Grid:
    """Mark up a table cell by cell: numbers to the right, verdicts in their colours."""
    return rows_grid(table.title, table.headers, table.rows, table.notes)


def rows_grid(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[Cell | str]], notes: Sequence[str] = ()
) -> Grid:
    """Make a grid of one group of rows from texts and cells."""
    kinds = column_kinds(headers, [[c.text if isinstance(c, Cell) else c for c in row] for row in rows])
    for i in range(len(headers)):  # a heading stands where its cells do
        if any(isinstance(row[i], Cell) and row[i].kind.startswith("text") for row in rows):  # type: ignore[union-attr]
            kinds[i] = "text"
    cells = tuple(
        tuple(
            c if isinstance(c, Cell) else body_cell(h, c, kind)
            for h, c, kind in zip(headers, row, kinds, strict=True)
        )
        for row in rows
    )
    return Grid(
        title=title,
        headers=tuple(Cell(text=h, kind=kind) for h, kind in zip(headers, kinds, strict=True)),
        groups=(cells,) if cells else (),
        notes=tuple(notes),
    )


def column_kinds(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return ``num`` for columns that hold numbers, else ``text``."""
    numeric = [any(_begins_with_digit(row[i]) for row in rows) for i in range(len(headers))]
    return ["num" if n and h not in TEXT_COLUMNS else "text" for h, n in zip(headers, numeric, strict=True)]


def _begins_with_digit(text: str) -> bool:
    return text.lstrip("-−[")[:1].isdigit()


def body_cell(header: str, text: str, kind: str) -> Cell:
    """Mark up one text below a header."""
    if header in ("verdict", "status", "reached"):
        return Cell(text, None, f"{kind} verdict {verdict_class(text)}")
    return Cell(text, None, kind)


def verdict_class(text: str) -> str:
    """Return the class of a verdict such as ``inconclusive (≈ 40 launches)``; a gain at a price has one of its own."""
    if BUT_WORSE in text:
        return "price"
    if text.startswith(NO_DIFFERENCE):
        return "even"
    return VERDICT_CLASSES.get(text.partition(" (")[0], "quiet")
