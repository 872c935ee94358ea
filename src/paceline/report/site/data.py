"""What pages of all kinds show, computed once: boards, their comparisons, links, and what a kind of page is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from paceline.analysis.claims.headlines import LedgerRow
from paceline.analysis.claims.results import ClaimResult
from paceline.analysis.compare import Comparison, compare_points
from paceline.analysis.evidence import OFF_BOARD_REASONS, PointKey, point_key
from paceline.analysis.points import Point
from paceline.base.techniques.technique import TechniqueSource
from paceline.base.terminal import harmless
from paceline.records.origin.ancestry import IsAncestor, unknown
from paceline.records.store.folder import Loaded, RunRecord
from paceline.records.store.health import FoundHealth
from paceline.records.store.proofs import ProofReport
from paceline.report.boards import page as boards_page
from paceline.report.boards import pairs
from paceline.report.boards import techniques as boards_techniques
from paceline.report.boards.standing import Board, Selection, select, usable_points
from paceline.report.html import Grid, environment
from paceline.report.runs import comparison as runs_comparison
from paceline.report.runs import page as runs_page
from paceline.report.runs import trends
from paceline.report.site import downloads
from paceline.report.site.forks import Files, Job
from paceline.report.site.page_cache import PageCache

File = tuple[str, str | bytes]
"""A file's path in the site, and what it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteInput:
    """Everything that a site shows."""

    loaded: Loaded
    points: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    """Run id → the points of its record, of those that somebody has looked for already."""
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
    proofs: Sequence[ProofReport] = ()
    """What ``paceline doctor --prove`` reported of machines."""
    health: FoundHealth = field(default_factory=FoundHealth)
    """What the harness's own measured tests found."""
    published: frozenset[str] = frozenset()
    """Runs of other machines that the checkout publishes: one's own stand before them, and they are marked."""
    is_ancestor: IsAncestor = unknown
    """What is known of the commits of runs: nights of old ones are left out of trends."""
    built: date | None = None
    """The day, in UTC, from which the age of that is told; nothing else of the site depends on it."""


class Site:
    """One rendering: what all pages are made of, and the templates that show it."""

    def __init__(self, given: SiteInput, cache: PageCache | None = None) -> None:
        self.given = given
        self.cache = cache
        self.records = sorted(given.loaded.records, key=lambda r: r.run_id)
        self.runs = [r for r in self.records if r.run.reason != "correction"]
        self.points = {
            r.run_id: usable_points(r, given.points.get(r.run_id))
            for r in self.records
            if r.run.reason not in OFF_BOARD_REASONS
        }
        found = select(self.records, self.usable)
        own_first = sorted(found.boards, key=lambda board: board.only_of(given.published))
        self.selection: Selection = replace(found, boards=tuple(own_first))
        everything = [p for board in self.selection.boards for p in board.points]
        self.comparisons: dict[int, list[Comparison]] = {}
        for comparison in compare_points(everything):
            self.comparisons.setdefault(id(comparison.point), []).append(comparison)
        newest = max((r.run.started for r in self.runs), default="")
        self.newest_day = newest[:10]
        self.run_hrefs = {r.run_id: f"../runs/{runs_page.run_slug(r.run_id)}.html" for r in self.runs}
        self.point_hrefs: dict[PointKey, str] = {
            point_key(p): f"../cases/{board.point_slug(p)}.html"
            for board in self.selection.boards
            for p in board.points
        }
        self.origin = boards_page.Origin(newest=newest, hrefs=self.run_hrefs, published=given.published)
        self.claims = [*(c for row in given.ledger for c in row.results), *given.bounds]
        self.pairs = list(runs_comparison.pairs(self.runs))
        self.choices = runs_comparison.choices(self.runs)
        self.machines = pairs.on_machines(self.selection.boards)
        self.trends = [
            t for board in self.selection.boards for t in trends.trends_of(board, given.is_ancestor)
        ]
        self.alerts = trends.recent(self.trends)
        self.portraits = boards_techniques.portraits(self.selection.boards, given.techniques)
        self.tables = downloads.data_tables(
            [(board, self.of(board)) for board in self.selection.boards], self.claims
        )

    def usable(self, record: RunRecord) -> tuple[list[Point], list[str]]:
        """Return a record's points that can be shown, and what is wrong with the others."""
        return self.points.get(record.run_id) or usable_points(record)

    def render(self, template: str, **values: Any) -> str:
        """Return a page: a template with values, and the day of the newest run."""
        return environment().get_template(template).render(newest=self.newest_day, **values)

    def of(self, board: Board) -> list[Comparison]:
        """Return the comparisons of a board's points."""
        return [c for p in board.points for c in self.comparisons.get(id(p), ())]

    def elsewhere(self, board: Board) -> str | None:
        """Return the page on which a board stands beside those of other machines, from the top of the site."""
        return next((suite.href for suite in self.machines if board in suite.boards), None)

    def places(self, board: Board) -> dict[tuple[str, str, str], str]:
        """Return (run, suite, block) → page of each point that stands on a board."""
        return {(p.run.run_id, p.suite, p.block): f"cases/{board.point_slug(p)}.html" for p in board.points}

    def problems(self) -> list[str]:
        """Say which files of the store cannot be read."""
        return [harmless(f"{Path(p.path).name}: {p.what}") for p in self.given.loaded.problems]

    def claim_grid(self, claims: Sequence[ClaimResult]) -> Grid:
        """Return claims with links, as pages in folders show them."""
        return runs_page.claim_grid(claims, self.run_hrefs, self.point_hrefs)

    def kept(
        self, records: Iterable[RunRecord], inputs: Sequence[Any], paths: Sequence[str], job: Job
    ) -> Job:
        """Let a job use the cache, if the files of all records that it reads are known by their digests."""
        digests = sorted({(r.run_id, r.sha256) for r in records}, key=str)
        if self.cache is None or any(digest is None for _, digest in digests):
            return job
        return self.cache.wrap((digests, *inputs), paths, job)


def one(path: str, page: Callable[..., str], *about: Any) -> Files:
    """Make one page: a job, once its arguments are given."""
    return [(path, page(*about))]


def together(jobs: Sequence[Job]) -> Files:
    """Do several jobs in one process."""
    return [file for job in jobs for file in job()]


def nothing(site: Site) -> tuple[()]:
    """Make nothing."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKind:
    """One kind of page. A module of ``report.site.kinds`` holds one as ``KIND``, and the site finds it there."""

    pages: Callable[[Site], Iterable[File]] = nothing
    """Makes what is about the whole site, while other processes make what is about parts of it."""
    jobs: Callable[[Site], Iterable[Job]] = nothing
    """Returns what is about parts of it, in parts that need nothing of each other."""
    place: int = 9
    """Kinds whose jobs take long begin first; those of one place are in the order of their names."""
