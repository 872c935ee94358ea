"""The ledger of papers with their claims."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.analysis.claims.headlines import conforming
from paceline.report.html import verdict_class
from paceline.report.runs import page as runs
from paceline.report.site.data import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield the page."""
    yield "claims.html", claims_page(site)


def claims_page(site: Site) -> str:
    """Return the page."""
    families = [
        (name, rows, runs.verdict_counts(rows)) for name, rows in runs.ledger_families(site.given.ledger)
    ]
    hrefs = {run_id: href.removeprefix("../") for run_id, href in site.run_hrefs.items()}
    places = {key: href.removeprefix("../") for key, href in site.point_hrefs.items()}
    grids = {
        row.paper.slug: runs.claim_grid(row.results, hrefs, places)
        for row in site.given.ledger
        if row.results
    }
    return site.render(
        "claims.html",
        root="",
        families=families,
        verdicts=runs.verdict_counts(site.given.ledger, always=("not reproduced",)),
        num_papers=len(site.given.ledger),
        grids=grids,
        headlines={row.paper.slug: runs.headline_grid(row) for row in site.given.ledger if row.headlines},
        conforming=conforming,
        num_bounds=len(site.given.bounds),
        bounds=runs.claim_grid(site.given.bounds, hrefs, places) if site.given.bounds else None,
        verdict_class=verdict_class,
        facets=runs.facets,
        best_first=runs.best_first,
        gist=runs.gist,
    )


KIND = PageKind(pages=pages)
