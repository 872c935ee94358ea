"""Tables of boards and claims as files, badges, and the page that lists them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from paceline.records.store.folder import RunRecord
from paceline.report.boards.standing import slug
from paceline.report.charts import badges
from paceline.report.html import verdict_class
from paceline.report.site import downloads
from paceline.report.site.data import PageKind, Site, together
from paceline.report.site.forks import Files, Job

FORMS, ENDINGS = ("CSV", "JSON", "Parquet"), (".csv", ".json", ".parquet")


def jobs(site: Site) -> Iterator[Job]:
    """Yield one job: what writes Parquet takes long to load, so that one process does it."""
    yield partial(together, [kept_files(site, table) for table in site.tables])


def kept_files(site: Site, table: downloads.DataTable) -> Job:
    """Return what gives the files of a table, from an earlier build if what its rows are made of is the same."""
    paths = [f"{table.path}{ending}" for ending in ENDINGS]
    inputs: tuple[Any, ...] = ("data", table.path, table.name, table.place)
    records: list[RunRecord] = []
    if table.board is None:
        inputs += (table.rows(),)
    else:
        used = {p.run.run_id for p in table.board.points}
        records = [r for r in site.records if r.run_id in used]
        shown = [(p.run.run_id, p.block, sorted(p.confirmed)) for p in table.board.points]
        found = [(c.label, c.metric, c.kind, c.verdict.name, c.q_value) for c in site.of(table.board)]
        inputs += (shown, found)
    return site.kept(records, inputs, paths, partial(data_files, table))


def data_files(table: downloads.DataTable) -> Files:
    """Return a table as CSV, JSON and Parquet."""
    rows = table.rows()
    return [
        (f"{table.path}.csv", downloads.csv_text(rows)),
        (f"{table.path}.json", downloads.json_text(rows, table=table.name, measured_on=table.place)),
        (f"{table.path}.parquet", downloads.parquet_bytes(rows)),
    ]


def pages(site: Site) -> Iterator[tuple[str, str | bytes]]:
    """Yield the badges, and the page that lists them and all tables."""
    for board in site.selection.boards:
        yield f"badges/{board.slug}.svg", badges.board_badge(board.suite, site.of(board))
    files = []
    for table in site.tables:
        paths = {kind: f"{table.path}{ending}" for kind, ending in zip(FORMS, ENDINGS, strict=True)}
        paths |= {"badge": table.badge} if table.badge else {}
        files.append((table.name, table.place, paths, table.num_rows))
    papers = [
        (row, f"badges/{slug(row.paper.slug, 'paper')}.svg") for row in site.given.ledger if row.results
    ]
    for row, path in papers:
        yield path, badges.badge(row.paper.slug, row.verdict, verdict_class(row.verdict))
    found = downloads.badge_grid([(row.paper.slug, row.verdict, path) for row, path in papers])
    yield "data.html", site.render("data.html", root="", files=downloads.file_grid(files), badges=found)


KIND = PageKind(pages=pages, jobs=jobs, place=0)
