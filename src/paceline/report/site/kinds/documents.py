"""The documents, ordered by need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from paceline.report.site import documents as site_documents
from paceline.report.site.data import PageKind, Site, one
from paceline.report.site.forks import Job


def jobs(site: Site) -> Iterator[Job]:
    """Yield a page for each document; the index, to which every page links, is there without any, too."""
    documents = {site_documents.INDEX: site_documents.NONE} | dict(site.given.docs)
    for name, text in documents.items():
        href = site_documents.doc_href(name)
        inputs = ("document", name, text, sorted(site.given.docs))
        yield site.kept([], inputs, [href], partial(one, href, page_of, site, name, text))


def page_of(site: Site, name: str, text: str) -> str:
    """Return the page of one document."""
    page = site_documents.doc_page(name, text, site.given.docs)
    root = "../" * site_documents.doc_href(name).count("/")
    return site.render("doc.html", root=root, page=page, index=name == site_documents.INDEX)


KIND = PageKind(jobs=jobs)
