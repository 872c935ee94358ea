"""The machines that were measured on."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report import hardwarepages
from paceline.report.sitedata import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield the page."""
    yield "hardware.html", hardware_page(site)


def hardware_page(site: Site) -> str:
    """Return the page."""
    found = [
        (m, hardwarepages.host_facts(m), hardwarepages.ceiling_grid(m), hardwarepages.newest_href(m))
        for m in hardwarepages.machines(site.records)
    ]
    proved = [(r, hardwarepages.proof_grid(r), list(r.facts.items())) for r in site.given.proofs]
    return site.render("hardware.html", root="", machines=found, proved=proved)


KIND = PageKind(pages=pages)
