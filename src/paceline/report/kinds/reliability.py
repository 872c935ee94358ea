"""What ended without a number, and why."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report import reliabilitypages
from paceline.report.sitedata import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield the page."""
    yield "reliability.html", reliability_page(site)


def reliability_page(site: Site) -> str:
    """Return the page."""
    found = reliabilitypages.endings(site.records)
    return site.render(
        "reliability.html",
        root="",
        suites=reliabilitypages.suite_grid(found),
        techniques=reliabilitypages.technique_grid(found),
        reasons=reliabilitypages.reason_grid(found),
    )


KIND = PageKind(pages=pages)
