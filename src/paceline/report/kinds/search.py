"""The index that the search box of every page reads."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report.searchindex import entries, index_script
from paceline.report.sitedata import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield the index."""
    yield "search-index.js", index_script(list(entries(site)))


KIND = PageKind(pages=pages)
