"""What ended without a number, and why; what the harness's own measured tests found."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report import healthpages, reliabilitypages
from paceline.report.sitedata import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield the page."""
    yield "reliability.html", reliability_page(site)


def reliability_page(site: Site) -> str:
    """Return the page."""
    found = reliabilitypages.endings(site.records)
    health = site.given.health.health
    return site.render(
        "reliability.html",
        root="",
        suites=reliabilitypages.suite_grid(found),
        techniques=reliabilitypages.technique_grid(found),
        reasons=reliabilitypages.reason_grid(found),
        health_problems=site.given.health.problems,
        health_facts=() if health is None else healthpages.facts(health, site.given.built),
        health=None if health is None else healthpages.open_grid(health),
    )


KIND = PageKind(pages=pages)
