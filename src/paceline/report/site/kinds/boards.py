"""Boards and their points, with the pages of the runs that stand on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from paceline.report.boards import noise, pairs, scaling, sweeps, techniques
from paceline.report.boards import page as pages
from paceline.report.boards.standing import Board
from paceline.report.findings import board_answer
from paceline.report.html import Grid
from paceline.report.points import (
    answers,
    call_counts,
    calls,
    curves,
    equal_budgets,
    page,
    timelines,
    tradeoffs,
)
from paceline.report.site.data import PageKind, Site, together
from paceline.report.site.forks import Files, Job
from paceline.report.site.kinds.runs import all_places, boards_of_runs, run_job
from paceline.report.tables.results import format_param, primary_metric, varying_params
from paceline.report.words.names import metric_label


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardView:
    """A board with its table and what the templates need beside it."""

    board: Board
    grid: Grid
    failures: Grid
    num_runs: int
    num_techniques: int
    primary: str
    baseline: str
    runner_is: str
    """How its ranks are started and joined; empty where that needs no word."""
    everywhere: str
    """Parameters that all points share and that are not what they are by default: a link, a size of models."""


def jobs(site: Site) -> Iterator[Job]:
    """Yield a job for each board with its points, and with its runs: they show the same statistics."""
    places, last = all_places(site), boards_of_runs(site)
    for board in site.selection.boards:
        runs = [r for r in site.runs if last.get(r.run_id) is board]
        yield partial(together, [board_job(site, board), *(run_job(site, r, places) for r in runs)])


def board_job(site: Site, board: Board) -> Job:
    """Everything that a board and its points show beside the numbers of their own records is an input."""
    used = {p.run.run_id for points in (board.points, *board.history) for p in points}
    own = [
        (p.run.run_id, p.block, sorted(p.confirmed), site.origin.marks(p.run))
        for points in board.history
        for p in points
    ]
    shown = [(p.run.run_id, p.block) for p in board.points]
    facts = (board.slug, board.description, board.tuning, board.num_superseded, shown, own)
    found = [(c.label, c.metric, c.kind, c.margin, c.verdict, c.grade, c.warnings) for c in site.of(board)]
    claims = [c for c in site.claims if c.suite == board.suite]
    links = techniques.links(site.portraits, board, "../")
    paths = [f"boards/{board.slug}.html", *(f"cases/{board.point_slug(p)}.html" for p in board.points)]
    claimed = [(site.run_hrefs.get(c.run_id or ""), site.point_hrefs.get(c.point or ())) for c in claims]
    inputs = ("board", facts, found, claims, claimed, links, site.elsewhere(board))
    records = [r for r in site.records if r.run_id in used]
    return site.kept(records, inputs, paths, partial(board_files, site, board))


def board_files(site: Site, board: Board) -> Files:
    """Make the pages of a board and its points."""
    keys = varying_params(board.points)
    names = sorted({name for p in board.points for name in p.labels})
    cases: Files = [
        (f"cases/{board.point_slug(point)}.html", point_page(site, board, number, keys, names))
        for number, point in enumerate(board.points)
    ]
    return [(f"boards/{board.slug}.html", board_page(site, board)), *cases]


def view(site: Site, board: Board, root: str) -> BoardView:
    """Return a board with its table and what the templates need beside it."""
    hrefs = {id(p): f"{root}cases/{board.point_slug(p)}.html" for p in board.points}
    title = f"{board.suite} on {board.host_class}"
    return BoardView(
        board=board,
        grid=pages.board_grid(board.points, site.of(board), hrefs, title, site.origin),
        failures=pages.failure_grid(board.points, varying_params(board.points)),
        num_runs=len({p.run.run_id for p in board.points}),
        num_techniques=len({name for p in board.points for name in pages.table_labels(p)}),
        primary=metric_label(primary_metric(board.points)),
        baseline=board.points[0].baseline,
        runner_is=pages.runner_text(board.points[0].run.runner),
        everywhere=", ".join(pages.shared_params(board.points)),
    )


def board_page(site: Site, board: Board) -> str:
    """Return the page of a board."""
    claims = [c for c in site.claims if c.suite == board.suite]
    swept = sweeps.sweep_charts(board)
    answer = board_answer.answer(board, site.of(board), swept)
    return site.render(
        "board.html",
        root="../",
        answer=answer,
        view=view(site, board, "../"),
        has_pairs=len(pairs.techniques_of(board)) > 1,
        elsewhere=site.elsewhere(board),
        diagnostic=pages.diagnostic_grid(board.points),
        charts=[c for c in swept if answer is None or c is not answer.chart],
        loads=sweeps.load_charts(board),
        load=sweeps.load_grid(board),
        crossings=sweeps.crossing_grid(board, site.of(board)),
        scaling=scaling.scaling_grid(board),
        scaling_charts=scaling.scaling_charts(board),
        claims=site.claim_grid(claims),
        techniques=techniques.links(site.portraits, board, "../"),
        noise=noise.series_grid(board, site.of(board), "../"),
    )


def point_page(site: Site, board: Board, number: int, keys: Sequence[str], names: Sequence[str]) -> str:
    """Return the page of a point."""
    point = board.points[number]
    return site.render(
        "point.html",
        root="../",
        board=board,
        point=point,
        name=pages.point_name(point, keys),
        params=[(k, format_param(k, v)) for k, v in point.params.items()],
        run_href=site.run_hrefs[point.run.run_id],
        grid=pages.board_grid([point], site.comparisons.get(id(point), []), {}, "at this point", site.origin),
        curves=curves.curve_charts(point, names),
        curve_numbers=curves.curve_grid(point),
        shares=curves.are_shares(point),
        equal=equal_budgets.equal_grids(point),
        frontiers=tradeoffs.frontier_charts(point, names),
        tradeoffs=tradeoffs.frontier_grid(point),
        equals=tradeoffs.equal_grid(point),
        splits=tradeoffs.split_charts(point),
        calls=calls.call_charts(point),
        call=calls.call_grid(point),
        noted=call_counts.call_notes(point),
        timelines=timelines.timeline_charts(point),
        timeline=timelines.timeline_grid(point),
        paired=answers.paired_grid(point),
        single_traces=answers.trace_grid(point),
        levels=answers.level_grid(point),
        examples=answers.examples(point),
        charts=page.distributions(point, names),
        launches=page.launch_grid(point),
        headline=page.headline_grid(point),
        diagnostic=page.diagnostic_grid(point),
        evidence=page.evidence_grid(point),
        contract=page.contract_rows(point),
        failures=pages.failure_grid([point], ()),
        history=page.history_grid(board.history[number], site.run_hrefs),
        techniques=techniques.links(site.portraits, board, "../"),
    )


KIND = PageKind(jobs=jobs, place=1)
