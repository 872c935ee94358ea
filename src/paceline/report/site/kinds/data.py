"""Tables of boards and claims as files, badges, and the page that lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from paceline.report.boards.standing import slug
from paceline.report.charts import badges
from paceline.report.html import verdict_class
from paceline.report.site import downloads
from paceline.report.site.data import PageKind, Site, together
from paceline.report.site.forks import Files, Job

ENDINGS = (".csv", ".json", ".parquet")


def jobs(site: Site) -> Iterator[Job]:
    """Yield one job: what writes Parquet takes long to load, so that one process does it."""
    yield partial(together, [kept_files(site, *table) for table in site.tables])


def kept_files(
    site: Site, path: str, name: str, place: str, rows: Sequence[downloads.Row], badge: str
) -> Job:
    """Return what gives the files of a table, from an earlier build if its rows are the same."""
    paths = [f"{path}{ending}" for ending in ENDINGS]
    inputs = ("data", path, name, place, rows)
    return site.kept([], inputs, paths, partial(data_files, path, name, place, rows, badge))


def data_files(path: str, name: str, place: str, rows: Sequence[downloads.Row], badge: str) -> Files:
    """Return a table as CSV, JSON and Parquet."""
    return [
        (f"{path}.csv", downloads.csv_text(rows)),
        (f"{path}.json", downloads.json_text(rows, table=name, measured_on=place)),
        (f"{path}.parquet", downloads.parquet_bytes(rows)),
    ]


def pages(site: Site) -> Iterator[tuple[str, str | bytes]]:
    """Yield the badges, and the page that lists them and all tables."""
    for board in site.selection.boards:
        yield f"badges/{board.slug}.svg", badges.board_badge(board.suite, site.of(board))
    files = []
    for path, name, place, rows, svg in site.tables:
        paths = {"CSV": f"{path}.csv", "JSON": f"{path}.json", "Parquet": f"{path}.parquet"}
        files.append((name, place, paths | ({"badge": svg} if svg else {}), len(rows)))
    papers = [
        (row, f"badges/{slug(row.paper.slug, 'paper')}.svg") for row in site.given.ledger if row.results
    ]
    for row, path in papers:
        yield path, badges.badge(row.paper.slug, row.verdict, verdict_class(row.verdict))
    found = downloads.badge_grid([(row.paper.slug, row.verdict, path) for row, path in papers])
    yield "data.html", site.render("data.html", root="", files=downloads.file_grid(files), badges=found)


KIND = PageKind(pages=pages, jobs=jobs, place=0)
