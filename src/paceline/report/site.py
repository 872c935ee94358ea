"""The static site: leaderboard, points, techniques, runs, claims and metrics, as files that need no server.

Every number and chart is in the pages; the one script filters and orders tables, and pages are whole without it.
The same records give the same bytes: nothing of the time, the machine or the folder that builds it enters a page.
One class, long because every page is named in it once: what a page shows is in the module of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from paceline.analysis.claims import ClaimResult, LedgerRow
from paceline.analysis.compare import GRADES, Comparison, compare_points
from paceline.analysis.evidence import OFF_BOARD_REASONS, PointKey, point_key
from paceline.base.family import family_names, load_family
from paceline.base.technique import TechniqueSource
from paceline.records.record import STATUSES
from paceline.records.store import Loaded, RunRecord
from paceline.report import (
    answers,
    badges,
    callpages,
    comparepages,
    curves,
    datapages,
    docpages,
    equalbudgets,
    hardwarepages,
    homepages,
    noisepages,
    pointpages,
    reliabilitypages,
    scaling,
    sweeps,
    timelines,
    tradeoffs,
    trendpages,
)
from paceline.report import boardpages as pages
from paceline.report import runpages as runs
from paceline.report import techniquepages as techniques
from paceline.report.boards import Board, Selection, select, slug, usable_points
from paceline.report.forks import Files, Job, at_work
from paceline.report.html import (
    SCRIPT,
    STYLE,
    Grid,
    environment,
    on_demand,
    script,
    style_sheet,
    verdict_class,
)
from paceline.report.pagecache import PageCache
from paceline.report.sitefolder import MARKER
from paceline.report.tables import format_param, primary_metric, varying_params


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteInput:
    """Everything that a site shows."""

    loaded: Loaded
    ledger: Sequence[LedgerRow] = ()
    bounds: Sequence[ClaimResult] = ()
    """Claims that no paper makes: bounds of the suites' own."""
    suites: Sequence[Mapping[str, Any]] = ()
    """Facts of the suites known here (``provenance.suite_facts``): those without results are named."""
    techniques: Sequence[TechniqueSource] = ()
    """Those that are known here."""
    calibration: Mapping[str, Any] = field(default_factory=dict)
    """Name → content of each calibration file."""
    docs: Mapping[str, str] = field(default_factory=dict)
    """Path → Markdown of each document."""


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


def render_site(
    given: SiteInput, *, processes: int = 1, cache: PageCache | None = None, beside: Sequence[Job] = ()
) -> Iterator[tuple[str, str | bytes]]:
    """Return every file of the site as (path, text), the same ones whatever the other arguments.

    Args:
        given: What it shows.
        processes: How many of them make pages.
        cache: Where pages of an earlier build may lie.
        beside: What else the processes have to do, last.
    """
    return _Site(given, cache).files(processes if len(given.loaded.records) > 1 else 1, beside)


def _together(jobs: Sequence[Job]) -> Files:
    return [file for job in jobs for file in job()]


class _Site:
    """One rendering: the boards, their comparisons, and the templates that show them."""

    def __init__(self, given: SiteInput, cache: PageCache | None = None) -> None:
        self.given = given
        self.cache = cache
        self.records = sorted(given.loaded.records, key=lambda r: r.run_id)
        self.runs = [r for r in self.records if r.run.reason != "correction"]
        self.points = {
            r.run_id: usable_points(r) for r in self.records if r.run.reason not in OFF_BOARD_REASONS
        }
        self.selection: Selection = select(self.records, lambda r: self.points[r.run_id])
        everything = [p for board in self.selection.boards for p in board.points]
        self.comparisons: dict[int, list[Comparison]] = {}
        for comparison in compare_points(everything):
            self.comparisons.setdefault(id(comparison.point), []).append(comparison)
        newest = max((r.run.started for r in self.runs), default="")
        self.newest_day = newest[:10]
        self.run_hrefs = {r.run_id: f"../runs/{runs.run_slug(r.run_id)}.html" for r in self.runs}
        self.point_hrefs: dict[PointKey, str] = {
            point_key(p): f"../cases/{board.point_slug(p)}.html"
            for board in self.selection.boards
            for p in board.points
        }
        self.origin = pages.Origin(newest=newest, hrefs=self.run_hrefs)
        self.claims = [*(c for row in given.ledger for c in row.results), *given.bounds]
        self.pairs = list(comparepages.pairs(self.runs))
        self.choices = comparepages.choices(self.runs)
        self.trends = [t for board in self.selection.boards for t in trendpages.trends_of(board)]
        self.alerts = trendpages.recent(self.trends)
        self.portraits = techniques.portraits(self.selection.boards, given.techniques)
        self.tables = self.data_tables()

    def files(self, processes: int, beside: Sequence[Job] = ()) -> Iterator[tuple[str, str | bytes]]:
        with at_work([*self.jobs(), *beside], processes) as made:
            yield from self.own_files()
            yield from made

    def own_files(self) -> Iterator[tuple[str, str | bytes]]:
        """Yield what is about the whole site, while other processes make what is about parts of it."""
        yield MARKER, "made by `paceline site build`; the next build replaces this folder\n"
        yield STYLE, style_sheet()
        yield SCRIPT, script()
        yield from on_demand().items()
        yield "index.html", self.index()
        yield "feed.xml", homepages.feed(self.runs)
        yield "claims.html", self.claims_page()
        yield "calibration.html", self.calibration_page()
        yield "runs.html", self.runs_page()
        yield (
            "comparisons.html",
            self.render("comparisons.html", root="", choices=self.choices, newest_runs=comparepages.NEWEST),
        )
        yield "metrics.html", self.metrics_page()
        yield "hardware.html", self.hardware_page()
        yield "reliability.html", self.reliability_page()
        yield "trends.html", self.trends_page()
        yield "techniques.html", self.techniques_page()
        yield from self.data_page()
        yield from self.doc_pages()

    def jobs(self) -> list[Job]:
        """Return what is left to make, in parts that need nothing of each other."""
        boards = self.selection.boards
        hrefs = {id_: href for board in boards for id_, href in self.places(board).items()}
        last = {p.run.run_id: board for board in boards for p in board.points}
        beside = {id(board): [r for r in self.runs if last.get(r.run_id) is board] for board in boards}
        return [
            # in one process, since what writes Parquet takes long to load
            partial(_together, [partial(self.data_files, *table) for table in self.tables]),
            *(
                partial(_together, [self.board_job(b), *(self.run_job(r, hrefs) for r in beside[id(b)])])
                for b in boards  # one after the other in one process: they show the same statistics
            ),
            *(partial(self.one, p.href, self.technique_page, p) for p in self.portraits),
            *(self.run_job(r, hrefs) for r in self.runs if r.run_id not in last),
            *(self.trend_job(t) for t in self.trends),
            *(self.pair_job(pair) for pair in comparepages.all_pairs(self.pairs, self.choices)),
        ]

    def kept(
        self, records: Iterable[RunRecord], inputs: Sequence[Any], paths: Sequence[str], job: Job
    ) -> Job:
        """Let a job use the cache, if the files of all records that it reads are known by their digests."""
        digests = sorted({(r.run_id, r.sha256) for r in records}, key=str)
        if self.cache is None or any(digest is None for _, digest in digests):
            return job
        return self.cache.wrap((digests, *inputs), paths, job)

    def board_job(self, board: Board) -> Job:
        """Everything that a board and its points show beside the numbers of their own records is an input."""
        used = {p.run.run_id for points in (board.points, *board.history) for p in points}
        own = [
            (p.run.run_id, p.block, sorted(p.confirmed), self.origin.marks(p.run))
            for points in board.history
            for p in points
        ]
        shown = [(p.run.run_id, p.block) for p in board.points]
        facts = (board.slug, board.description, board.tuning, board.num_superseded, shown, own)
        found = [
            (c.label, c.metric, c.kind, c.margin, c.verdict, c.grade, c.warnings) for c in self.of(board)
        ]
        claims = [c for c in self.claims if c.suite == board.suite]
        links = techniques.links(self.portraits, board, "../")
        paths = [f"boards/{board.slug}.html", *(f"cases/{board.point_slug(p)}.html" for p in board.points)]
        claimed = [(self.run_hrefs.get(c.run_id or ""), self.point_hrefs.get(c.point or ())) for c in claims]
        inputs = ("board", facts, found, claims, claimed, links)
        records = [r for r in self.records if r.run_id in used]
        return self.kept(records, inputs, paths, partial(self.board_files, board))

    def run_job(self, record: RunRecord, hrefs: Mapping[tuple[str, str, str], str]) -> Job:
        points, _ = self.points.get(record.run_id, ([], []))
        places = [
            (p.suite, p.block, hrefs.get((p.run.run_id, p.suite, p.block)), sorted(p.confirmed))
            for p in points
        ]
        pairs = [(p.why, p.href) for p in self.pairs if p.later is record]
        marks = self.origin.marks(record.run)
        inputs = ("run", record.path.name, places, pairs, marks, self.given.loaded.notes(record.run_id))
        path = f"runs/{runs.run_slug(record.run_id)}.html"
        return self.kept([record], inputs, [path], partial(self.one, path, self.run_page, record, hrefs))

    def trend_job(self, trend: trendpages.Trend) -> Job:
        nights = {n.run_id for h in trend.series for n in h.nights}
        told = [(n, self.run_hrefs.get(n), self.given.loaded.notes(n)) for n in sorted(nights)]
        board = trend.board
        where = (board.slug, board.suite, board.family, board.host_class, board.runner, board.image_class)
        inputs = ("trend", where, trend.name, trend.href, trend.case_href, trend.series, told)
        records = [r for r in self.records if r.run_id in nights]
        return self.kept(records, inputs, [trend.href], partial(self.one, trend.href, self.trend_page, trend))

    def pair_job(self, pair: comparepages.Pair) -> Job:
        job = partial(self.one, pair.href, self.compare_page, pair)
        sides = (pair.later, pair.earlier)
        names = [r.run_id for r in sides]
        return self.kept(sides, ("pair", names, pair.why), [pair.href], job)

    def one(self, path: str, page: Callable[..., str], *about: Any) -> Files:
        return [(path, page(*about))]

    def board_files(self, board: Board) -> Files:
        keys = varying_params(board.points)
        names = sorted({name for p in board.points for name in p.labels})
        cases: Files = [
            (f"cases/{board.point_slug(point)}.html", self.point_page(board, number, keys, names))
            for number, point in enumerate(board.points)
        ]
        return [(f"boards/{board.slug}.html", self.board_page(board)), *cases]

    def render(self, template: str, **values: Any) -> str:
        return environment().get_template(template).render(newest=self.newest_day, **values)

    def of(self, board: Board) -> list[Comparison]:
        return [c for p in board.points for c in self.comparisons.get(id(p), ())]

    def places(self, board: Board) -> dict[tuple[str, str, str], str]:
        """Return (run, suite, block) → page of each point that stands on a board."""
        return {(p.run.run_id, p.suite, p.block): f"cases/{board.point_slug(p)}.html" for p in board.points}

    def view(self, board: Board, root: str) -> BoardView:
        hrefs = {id(p): f"{root}cases/{board.point_slug(p)}.html" for p in board.points}
        title = f"{board.suite} on {board.host_class}"
        return BoardView(
            board=board,
            grid=pages.board_grid(board.points, self.of(board), hrefs, title, self.origin),
            failures=pages.failure_grid(board.points, varying_params(board.points)),
            num_runs=len({p.run.run_id for p in board.points}),
            num_techniques=len({name for p in board.points for name in pages.table_labels(p)}),
            primary=primary_metric(board.points),
            baseline=board.points[0].baseline,
        )

    def index(self) -> str:
        measured = {board.suite for board in self.selection.boards}
        return self.render(
            "index.html",
            root="",
            num_boards=len(self.selection.boards),
            boards=homepages.board_list([(b, self.of(b)) for b in self.selection.boards]),
            alerts=trendpages.alert_grid(self.alerts),
            num_trends=sum(len(t.series) for t in self.trends),
            empty=[s for s in self.given.suites if s["suite"] not in measured],
            problems=[*self.selection.problems, *self.problems()],
            grades=GRADES,
            statuses=STATUSES,
            num_runs=len(self.runs),
            verdicts=runs.verdict_counts(self.given.ledger),
            calibration=sorted(self.given.calibration),
            coverage=homepages.coverage_grid(self.selection.boards, self.given.suites),
            news=homepages.news_grid(self.runs),
        )

    def problems(self) -> list[str]:
        return [f"{Path(p.path).name}: {p.what}" for p in self.given.loaded.problems]

    def board_page(self, board: Board) -> str:
        claims = [c for c in self.claims if c.suite == board.suite]
        return self.render(
            "board.html",
            root="../",
            view=self.view(board, "../"),
            diagnostic=pages.diagnostic_grid(board.points),
            charts=sweeps.sweep_charts(board),
            loads=sweeps.load_charts(board),
            load=sweeps.load_grid(board),
            crossings=sweeps.crossing_grid(board, self.of(board)),
            scaling=scaling.scaling_grid(board),
            scaling_charts=scaling.scaling_charts(board),
            claims=self.claim_grid(claims),
            techniques=techniques.links(self.portraits, board, "../"),
            noise=noisepages.series_grid(board, self.of(board), "../"),
        )

    def techniques_page(self) -> str:
        families = dict.fromkeys(one.family for one in self.portraits)
        papers = {row.paper.slug for row in self.given.ledger}
        return self.render(
            "techniques.html",
            root="",
            families=[
                (name, load_family(name).summary, techniques.technique_list(self.portraits, name, papers))
                for name in families
            ],
            count=len(self.portraits),
        )

    def technique_page(self, one: techniques.Portrait) -> str:
        paper = one.source.info.paper if one.source else None
        return self.render(
            "technique.html",
            root="../",
            one=one,
            paper=next((row.paper for row in self.given.ledger if row.paper.slug == paper), None),
            card=techniques.card(one),
            facts=techniques.facts(one),
            claims=self.claim_grid(techniques.claims_of(one, self.claims)),
            results=techniques.result_grids(one, self.comparisons, "../"),
            source=techniques.source_text(one),
        )

    def metrics_page(self) -> str:
        families = [f for f in map(load_family, family_names()) if not f.internal]
        return self.render("metrics.html", root="", families=[(f, f.metrics) for f in families])

    def hardware_page(self) -> str:
        found = [
            (m, hardwarepages.host_facts(m), hardwarepages.ceiling_grid(m), hardwarepages.newest_href(m))
            for m in hardwarepages.machines(self.records)
        ]
        return self.render("hardware.html", root="", machines=found)

    def reliability_page(self) -> str:
        found = reliabilitypages.endings(self.records)
        return self.render(
            "reliability.html",
            root="",
            suites=reliabilitypages.suite_grid(found),
            techniques=reliabilitypages.technique_grid(found),
            reasons=reliabilitypages.reason_grid(found),
        )

    def data_tables(self) -> list[tuple[str, str, str, list[datapages.Row], str]]:
        """Return every table: path without an ending, name, where it was measured, rows, and its badge."""
        tables = [
            (
                f"data/{board.slug}",
                board.suite,
                f"{board.runner}, {board.host_class}",
                datapages.board_rows(board, self.of(board)),
                f"badges/{board.slug}.svg",
            )
            for board in self.selection.boards
        ]
        if self.claims:
            tables.append(("data/claims", "claims", "all suites", datapages.claim_rows(self.claims), ""))
        return tables

    def data_files(
        self, path: str, name: str, place: str, rows: Sequence[datapages.Row], badge: str
    ) -> Files:
        """Return a table as CSV, JSON and Parquet."""
        return [
            (f"{path}.csv", datapages.csv_text(rows)),
            (f"{path}.json", datapages.json_text(rows, table=name, measured_on=place)),
            (f"{path}.parquet", datapages.parquet_bytes(rows)),
        ]

    def data_page(self) -> Iterator[tuple[str, str | bytes]]:
        """Yield the badges, and the page that lists them and all tables."""
        for board in self.selection.boards:
            yield f"badges/{board.slug}.svg", badges.board_badge(board.suite, self.of(board))
        files = []
        for path, name, place, rows, svg in self.tables:
            paths = {"CSV": f"{path}.csv", "JSON": f"{path}.json", "Parquet": f"{path}.parquet"}
            files.append((name, place, paths | ({"badge": svg} if svg else {}), len(rows)))
        papers = [
            (row, f"badges/{slug(row.paper.slug, 'paper')}.svg") for row in self.given.ledger if row.results
        ]
        for row, path in papers:
            yield path, badges.badge(row.paper.slug, row.verdict, verdict_class(row.verdict))
        found = datapages.badge_grid([(row.paper.slug, row.verdict, path) for row, path in papers])
        yield "data.html", self.render("data.html", root="", files=datapages.file_grid(files), badges=found)

    def claim_grid(self, claims: Sequence[ClaimResult]) -> Grid:
        return runs.claim_grid(claims, self.run_hrefs, self.point_hrefs)

    def point_page(self, board: Board, number: int, keys: Sequence[str], names: Sequence[str]) -> str:
        point = board.points[number]
        return self.render(
            "point.html",
            root="../",
            board=board,
            point=point,
            name=pages.point_name(point, keys),
            params=[(k, format_param(k, v)) for k, v in point.params.items()],
            run_href=self.run_hrefs[point.run.run_id],
            grid=pages.board_grid(
                [point], self.comparisons.get(id(point), []), {}, "at this point", self.origin
            ),
            curves=curves.curve_charts(point, names),
            course=curves.curve_grid(point),
            shares=curves.are_shares(point),
            equal=equalbudgets.equal_grids(point),
            frontiers=tradeoffs.frontier_charts(point, names),
            tradeoffs=tradeoffs.frontier_grid(point),
            equals=tradeoffs.equal_grid(point),
            splits=tradeoffs.split_charts(point),
            calls=callpages.call_charts(point),
            call=callpages.call_grid(point),
            timelines=timelines.timeline_charts(point),
            timeline=timelines.timeline_grid(point),
            paired=answers.paired_grid(point),
            single_traces=answers.trace_grid(point),
            levels=answers.level_grid(point),
            examples=answers.examples(point),
            charts=pointpages.distributions(point, names),
            launches=pointpages.launch_grid(point),
            headline=pointpages.headline_grid(point),
            diagnostic=pointpages.diagnostic_grid(point),
            evidence=pointpages.evidence_grid(point),
            contract=pointpages.contract_rows(point),
            failures=pages.failure_grid([point], ()),
            history=pointpages.history_grid(board.history[number], self.run_hrefs),
            techniques=techniques.links(self.portraits, board, "../"),
        )

    def runs_page(self) -> str:
        retracted = sorted(self.given.loaded.retracted.items())
        return self.render(
            "runs.html",
            root="",
            grid=runs.run_list(self.runs),
            retracted=retracted,
            problems=self.problems(),
        )

    def run_page(self, record: RunRecord, point_hrefs: Mapping[tuple[str, str, str], str]) -> str:
        grids, failures = [], []
        if record.run.reason not in OFF_BOARD_REASONS:
            points, _ = self.points[record.run_id]
            comparisons = compare_points(points)
            for suite in dict.fromkeys(p.suite for p in points):
                own = [p for p in points if p.suite == suite]
                places = {id(p): point_hrefs.get((p.run.run_id, p.suite, p.block)) for p in own}
                hrefs = {key: f"../{href}" for key, href in places.items() if href}
                grids.append(pages.board_grid(own, comparisons, hrefs, suite, self.origin))
                failures.append(pages.failure_grid(own, varying_params(own), suite))
        return self.render(
            "run.html",
            root="../",
            run=record.run,
            file=record.path.name,
            notes=self.given.loaded.notes(record.run_id),
            sealed=record.sealed,
            counts=runs.counts_text(runs.run_counts(record)),
            command=runs.reproduce_command(record.run),
            provenance=runs.provenance(record.run),
            sources=runs.source_grids(record.run),
            packages=runs.packages(record.run),
            python=(record.run.packages or {}).get("python"),
            skipped=runs.skipped_grid(record.run),
            stops=runs.stops_grid(record),
            grids=grids,
            failures=[f for f in failures if f.groups],
            pairs=[(p.why, f"../{p.href}") for p in self.pairs if p.later is record],
        )

    def compare_page(self, pair: comparepages.Pair) -> str:
        sides = [(record.run, self.run_hrefs[record.run_id]) for record in (pair.later, pair.earlier)]
        return self.render("compare.html", root="../", sides=sides, shown=comparepages.side_by_side(pair))

    def trends_page(self) -> str:
        return self.render(
            "trends.html",
            root="",
            alerts=trendpages.alert_grid(self.alerts),
            changes=trendpages.change_grid(self.trends),
            series=trendpages.list_grid(self.trends),
            blindness=trendpages.blindness(self.trends),
            num_series=sum(len(t.series) for t in self.trends),
        )

    def trend_page(self, trend: trendpages.Trend) -> str:
        loaded = self.given.loaded
        return self.render(
            "trend.html",
            root="../",
            trend=trend,
            charts=trendpages.trend_charts(trend, loaded),
            nights=trendpages.night_grid(trend, loaded, self.run_hrefs),
        )

    def doc_pages(self) -> Iterator[tuple[str, str | bytes]]:
        """Yield the documents; the index, to which every page links, is there without any, too."""
        for name, text in ({docpages.INDEX: docpages.NONE} | dict(self.given.docs)).items():
            href = docpages.doc_href(name)
            page = docpages.doc_page(name, text, self.given.docs)
            yield (
                href,
                self.render(
                    "doc.html", root="../" * href.count("/"), page=page, index=name == docpages.INDEX
                ),
            )

    def claims_page(self) -> str:
        families = [
            (name, rows, runs.verdict_counts(rows)) for name, rows in runs.ledger_families(self.given.ledger)
        ]
        hrefs = {run_id: href.removeprefix("../") for run_id, href in self.run_hrefs.items()}
        places = {key: href.removeprefix("../") for key, href in self.point_hrefs.items()}
        grids = {
            row.paper.slug: runs.claim_grid(row.results, hrefs, places)
            for row in self.given.ledger
            if row.results
        }
        return self.render(
            "claims.html",
            root="",
            families=families,
            verdicts=runs.verdict_counts(self.given.ledger),
            num_papers=len(self.given.ledger),
            grids=grids,
            bounds=runs.claim_grid(self.given.bounds, hrefs, places) if self.given.bounds else None,
            verdict_class=verdict_class,
        )

    def calibration_page(self) -> str:
        figures = [
            (name, *runs.calibration_grids(name, document))
            for name, document in sorted(self.given.calibration.items())
        ]
        noise = noisepages.summary_grid([(board, self.of(board)) for board in self.selection.boards])
        return self.render("calibration.html", root="", figures=figures, noise=noise)
