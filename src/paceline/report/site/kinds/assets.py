"""The mark of a site, style sheet and scripts."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report.html import SCRIPT, STYLE, on_demand, script, style_sheet
from paceline.report.site.data import File, PageKind, Site
from paceline.report.site.folder import MARKER


def pages(site: Site) -> Iterator[File]:
    """Yield what pages load, and what says that the folder may be replaced."""
    yield MARKER, "made by `paceline site build`; the next build replaces this folder\n"
    yield STYLE, style_sheet()
    yield SCRIPT, script()
    yield from on_demand().items()


KIND = PageKind(pages=pages)
