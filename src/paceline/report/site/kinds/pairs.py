"""Any two techniques of a board, and a suite on several machines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from paceline.report.boards import pairs
from paceline.report.boards.standing import Board
from paceline.report.site.data import PageKind, Site, one
from paceline.report.site.forks import Job
from paceline.report.tables.results import primary_metric
from paceline.report.words.names import metric_label


def jobs(site: Site) -> Iterator[Job]:
    """Yield a job for each board that has a pair, and for each suite that was measured on several machines."""
    for board in site.selection.boards:
        if len(pairs.techniques_of(board)) > 1:
            yield pair_job(site, board)
    yield from (machine_job(site, suite) for suite in site.machines)


def pair_job(site: Site, board: Board) -> Job:
    """Return a job; the records of the board's points and its names are inputs."""
    used = {p.run.run_id for p in board.points}
    shown = [(p.run.run_id, p.block) for p in board.points]
    path = pairs.pair_href(board)
    records = [r for r in site.records if r.run_id in used]
    inputs = ("pairs", board.slug, shown, site.elsewhere(board))
    return site.kept(records, inputs, [path], partial(one, path, pair_page, site, board))


def pair_page(site: Site, board: Board) -> str:
    """Return the page of a board's pairs."""
    return site.render(
        "pairs.html",
        root="../",
        board=board,
        place=pairs.place_name(board),
        metric=metric_label(primary_metric(board.points)),
        grid=pairs.pair_grid(board, "../"),
        elsewhere=site.elsewhere(board),
    )


def machine_job(site: Site, suite: pairs.SuiteOnMachines) -> Job:
    """Return a job; the verdicts against baselines, which depend on all comparisons of the site, are inputs."""
    points = [p for board in suite.boards for p in board.points]
    used = {p.run.run_id for p in points}
    found = [
        (c.point.run.run_id, c.point.block, c.label, c.metric, c.verdict, c.margin)
        for board in suite.boards
        for c in site.of(board)
    ]
    inputs = ("machines", suite.suite, [board.slug for board in suite.boards], found)
    records = [r for r in site.records if r.run_id in used]
    return site.kept(records, inputs, [suite.href], partial(one, suite.href, machine_page, site, suite))


def machine_page(site: Site, suite: pairs.SuiteOnMachines) -> str:
    """Return the page of a suite on its machines."""
    links = [(pairs.place_name(b), f"../boards/{b.slug}.html") for b in suite.boards]
    metric = metric_label(primary_metric(suite.boards[0].points))
    grid = pairs.machine_grid(suite, site.comparisons, "../")
    return site.render("machines.html", root="../", suite=suite, links=links, metric=metric, grid=grid)


KIND = PageKind(jobs=jobs, place=2)
