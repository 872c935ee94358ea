"""The machines that were measured on."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report.runs import hardware
from paceline.report.site.data import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield the page."""
    yield "hardware.html", hardware_page(site)


def hardware_page(site: Site) -> str:
    """Return the page."""
    found = [
        (m, hardware.host_facts(m), hardware.ceiling_grid(m), hardware.newest_href(m))
        for m in hardware.machines(site.records)
    ]
    proved = [(r, hardware.proof_grid(r), list(r.facts.items())) for r in site.given.proofs]
    return site.render("hardware.html", root="", machines=found, proved=proved)


KIND = PageKind(pages=pages)
