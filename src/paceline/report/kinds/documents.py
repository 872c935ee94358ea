"""The documents, ordered by need."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report import docpages
from paceline.report.sitedata import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield a page for each document; the index, to which every page links, is there without any, too."""
    documents = {docpages.INDEX: docpages.NONE} | dict(site.given.docs)
    for name, text in documents.items():
        href = docpages.doc_href(name)
        page = docpages.doc_page(name, text, site.given.docs)
        root = "../" * href.count("/")
        yield href, site.render("doc.html", root=root, page=page, index=name == docpages.INDEX)


KIND = PageKind(pages=pages)
