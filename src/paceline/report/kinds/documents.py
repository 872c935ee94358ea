"""The documents, ordered by need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from paceline.report import docpages
from paceline.report.forks import Job
from paceline.report.sitedata import PageKind, Site, one


def jobs(site: Site) -> Iterator[Job]:
    """Yield a page for each document; the index, to which every page links, is there without any, too."""
    documents = {docpages.INDEX: docpages.NONE} | dict(site.given.docs)
    for name, text in documents.items():
        href = docpages.doc_href(name)
        inputs = ("document", name, text, sorted(site.given.docs))
        yield site.kept([], inputs, [href], partial(one, href, page_of, site, name, text))


def page_of(site: Site, name: str, text: str) -> str:
    """Return the page of one document."""
    page = docpages.doc_page(name, text, site.given.docs)
    root = "../" * docpages.doc_href(name).count("/")
    return site.render("doc.html", root=root, page=page, index=name == docpages.INDEX)


KIND = PageKind(jobs=jobs)
