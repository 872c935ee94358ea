"""The index that the search box of every page reads."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report.site.data import File, PageKind, Site
from paceline.report.site.search import entries, index_script


def pages(site: Site) -> Iterator[File]:
    """Yield the index."""
    yield "search-index.js", index_script(list(entries(site)))


KIND = PageKind(pages=pages)
