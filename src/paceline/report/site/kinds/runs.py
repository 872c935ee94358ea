"""Runs: a list, and a page for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from paceline.analysis.compare import compare_points
from paceline.analysis.evidence import OFF_BOARD_REASONS
from paceline.analysis.points import uncommitted
from paceline.records.store.folder import RunRecord
from paceline.records.store.launches import status_counts
from paceline.report.boards import page
from paceline.report.boards.standing import Board
from paceline.report.runs import page as runs
from paceline.report.site.data import File, PageKind, Site, one
from paceline.report.site.forks import Job
from paceline.report.tables.results import varying_params

Places = Mapping[tuple[str, str, str], str]
"""(Run, suite, block) → page of each point that stands on a board."""


def pages(site: Site) -> Iterator[File]:
    """Yield the list."""
    yield "runs.html", runs_page(site)


def jobs(site: Site) -> Iterator[Job]:
    """Yield a job for each run that is on no board; those of the others go with their board."""
    last = boards_of_runs(site)
    places = all_places(site)
    return (run_job(site, r, places) for r in site.runs if r.run_id not in last)


def boards_of_runs(site: Site) -> dict[str, Board]:
    """Return the last board on which each run has a point."""
    return {p.run.run_id: board for board in site.selection.boards for p in board.points}


def all_places(site: Site) -> Places:
    """Return the pages of all points that stand on boards."""
    return {key: href for board in site.selection.boards for key, href in site.places(board).items()}


def run_job(site: Site, record: RunRecord, hrefs: Places) -> Job:
    """Return the job of a run's page: where its points stand, its pairs, marks and notes are inputs."""
    points, _ = site.points.get(record.run_id, ([], []))
    places = [
        (p.suite, p.block, hrefs.get((p.run.run_id, p.suite, p.block)), sorted(p.confirmed)) for p in points
    ]
    pairs = [(p.why, p.href) for p in site.pairs if p.later is record]
    marks = site.origin.marks(record.run)
    inputs = ("run", record.path.name, places, pairs, marks, site.given.loaded.notes(record.run_id))
    path = f"runs/{runs.run_slug(record.run_id)}.html"
    return site.kept([record], inputs, [path], partial(one, path, run_page, site, record, hrefs))


def runs_page(site: Site) -> str:
    """Return the list."""
    retracted = sorted(site.given.loaded.retracted.items())
    return site.render(
        "runs.html",
        root="",
        grid=runs.run_list(site.runs),
        retracted=retracted,
        problems=site.problems(),
    )


def run_page(site: Site, record: RunRecord, point_hrefs: Places) -> str:
    """Return the page of a run."""
    grids, failures = [], []
    if record.run.reason not in OFF_BOARD_REASONS:
        points, _ = site.points[record.run_id]
        comparisons = compare_points(points)
        for suite in dict.fromkeys(p.suite for p in points):
            own = [p for p in points if p.suite == suite]
            places = {id(p): point_hrefs.get((p.run.run_id, p.suite, p.block)) for p in own}
            hrefs = {key: f"../{href}" for key, href in places.items() if href}
            grids.append(page.board_grid(own, comparisons, hrefs, suite, site.origin))
            failures.append(page.failure_grid(own, varying_params(own), suite))
    return site.render(
        "run.html",
        uncommitted=uncommitted(record.run) if record.run.code.get("dirty") else None,
        root="../",
        run=record.run,
        file=record.path.name,
        notes=site.given.loaded.notes(record.run_id),
        sealed=record.sealed,
        counts=runs.counts_text(status_counts(record)),
        command=runs.reproduce_command(record.run),
        provenance=runs.provenance(record.run),
        sources=runs.source_grids(record.run),
        packages=runs.packages(record.run),
        python=(record.run.packages or {}).get("python"),
        skipped=runs.skipped_grid(record.run),
        stops=runs.stops_grid(record),
        grids=grids,
        failures=[f for f in failures if f.groups],
        pairs=[(p.why, f"../{p.href}") for p in site.pairs if p.later is record],
    )


KIND = PageKind(pages=pages, jobs=jobs, place=3)
