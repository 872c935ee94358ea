"""The first page, the list of boards, and the feed of runs."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.analysis.points import GRADES
from paceline.records.format.record import STATUSES
from paceline.report.findings.rules import MOST, RULES, Finding, Known, findings
from paceline.report.runs import page as runs
from paceline.report.runs import trends
from paceline.report.site import home
from paceline.report.site.data import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield them."""
    yield "index.html", index(site)
    yield "boards.html", board_list(site)
    yield "feed.xml", home.feed(site.runs)


def index(site: Site) -> str:
    """Return the first page: findings, families, hardware, claims in numbers, what changed, news."""
    boards = site.selection.boards
    series = [h for t in site.trends for h in t.series]
    return site.render(
        "index.html",
        root="",
        num_boards=len(boards),
        findings=found(site),
        rules=RULES,
        families=home.family_cards(boards),
        hardware_sentence=home.hardware_sentence(boards) if boards else "",
        hardware=home.hardware_grid(boards),
        alerts=trends.alert_grid(site.alerts),
        num_trends=len(series),
        num_seeing=sum(h.blind_nights == 0 for h in series),
        empty=unmeasured(site),
        problems=[*site.selection.problems, *site.problems()],
        grades=GRADES,
        statuses=STATUSES,
        num_runs=len(site.runs),
        verdicts=runs.verdict_counts(site.given.ledger),
        calibration=sorted(site.given.calibration),
        news=home.news_grid(site.runs),
    )


def board_list(site: Site) -> str:
    """Return the list of boards, which the script makes one that is chosen from, and what was measured where."""
    boards = site.selection.boards
    return site.render(
        "boards.html",
        root="",
        num_boards=len(boards),
        families=home.family_cards(boards),
        boards=home.board_list([(b, site.of(b)) for b in boards], site.given.published),
        coverage=home.coverage_grid(boards, site.given.suites),
        empty=unmeasured(site),
    )


def unmeasured(site: Site) -> list[dict[str, str]]:
    """Return the suites that are known here and have no board."""
    measured = {board.suite for board in site.selection.boards}
    return [
        {"suite": str(s["suite"]), "description": str(s["description"])}
        for s in site.given.suites
        if s["suite"] not in measured
    ]


def found(site: Site, most: int = MOST) -> list[Finding]:
    """Return the findings of a site, so many at most."""
    known = Known(
        boards=site.selection.boards,
        of=site.of,
        claims=site.claims,
        papers={row.paper.slug: row.verdict for row in site.given.ledger},
        alerts=site.alerts,
    )
    return findings(known, most)


KIND = PageKind(pages=pages)
