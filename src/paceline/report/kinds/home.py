"""The first page and the feed of runs."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.analysis.points import GRADES
from paceline.records.record import STATUSES
from paceline.report import homepages, trendpages
from paceline.report import runpages as runs
from paceline.report.sitedata import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield both."""
    yield "index.html", index(site)
    yield "feed.xml", homepages.feed(site.runs)


def index(site: Site) -> str:
    """Return the first page: boards, alarms, what is missing, news."""
    measured = {board.suite for board in site.selection.boards}
    return site.render(
        "index.html",
        root="",
        num_boards=len(site.selection.boards),
        boards=homepages.board_list([(b, site.of(b)) for b in site.selection.boards]),
        alerts=trendpages.alert_grid(site.alerts),
        num_trends=sum(len(t.series) for t in site.trends),
        empty=[s for s in site.given.suites if s["suite"] not in measured],
        problems=[*site.selection.problems, *site.problems()],
        grades=GRADES,
        statuses=STATUSES,
        num_runs=len(site.runs),
        verdicts=runs.verdict_counts(site.given.ledger),
        calibration=sorted(site.given.calibration),
        coverage=homepages.coverage_grid(site.selection.boards, site.given.suites),
        news=homepages.news_grid(site.runs),
    )


KIND = PageKind(pages=pages)
