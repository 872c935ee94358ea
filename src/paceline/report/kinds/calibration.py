"""The harness's own figures, and the noise of boards."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report import noisepages
from paceline.report import runpages as runs
from paceline.report.sitedata import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield the page."""
    yield "calibration.html", calibration_page(site)


def calibration_page(site: Site) -> str:
    """Return the page."""
    figures = [
        (name, *runs.calibration_grids(name, document))
        for name, document in sorted(site.given.calibration.items())
    ]
    noise = noisepages.summary_grid([(board, site.of(board)) for board in site.selection.boards])
    return site.render("calibration.html", root="", figures=figures, noise=noise)


KIND = PageKind(pages=pages)
