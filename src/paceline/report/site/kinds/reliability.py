"""What ended without a number, and why; what the harness's own measured tests found."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report.runs import health as runs_health
from paceline.report.runs import reliability
from paceline.report.site.data import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield the page."""
    yield "reliability.html", reliability_page(site)


def reliability_page(site: Site) -> str:
    """Return the page."""
    found = reliability.endings(site.records)
    health = site.given.health.health
    return site.render(
        "reliability.html",
        root="",
        suites=reliability.suite_grid(found),
        techniques=reliability.technique_grid(found),
        reasons=reliability.reason_grid(found),
        health_problems=site.given.health.problems,
        health_facts=() if health is None else runs_health.facts(health, site.given.built),
        health=None if health is None else runs_health.open_grid(health),
    )


KIND = PageKind(pages=pages)
