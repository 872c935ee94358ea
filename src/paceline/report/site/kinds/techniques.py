"""The techniques that are known here or were measured: a list, and a page for each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from paceline.base.families.family import load_family
from paceline.report.boards import techniques
from paceline.report.boards.paying import paying
from paceline.report.site.data import File, PageKind, Site, one
from paceline.report.site.forks import Job


def pages(site: Site) -> Iterator[File]:
    """Yield the list."""
    yield "techniques.html", techniques_page(site)


def jobs(site: Site) -> Iterator[Job]:
    """Yield a job for each technique."""
    return (partial(one, p.href, technique_page, site, p) for p in site.portraits)


def techniques_page(site: Site) -> str:
    """Return the list."""
    families = dict.fromkeys(one.family for one in site.portraits)
    papers = {row.paper.slug for row in site.given.ledger}
    return site.render(
        "techniques.html",
        root="",
        families=[
            (name, load_family(name).summary, techniques.technique_list(site.portraits, name, papers))
            for name in families
        ],
        count=len(site.portraits),
    )


def technique_page(site: Site, portrait: techniques.Portrait) -> str:
    """Return the page of one technique."""
    paper = portrait.source.info.paper if portrait.source else None
    return site.render(
        "technique.html",
        root="../",
        one=portrait,
        paper=next((row.paper for row in site.given.ledger if row.paper.slug == paper), None),
        card=techniques.card(portrait),
        facts=techniques.facts(portrait),
        fidelity=techniques.fidelity_facts(portrait),
        constants=techniques.constants_grid(portrait),
        paying=paying(portrait.name, [(u.board, u.label, u.points) for u in portrait.uses], site.comparisons),
        claims=site.claim_grid(techniques.claims_of(portrait, site.claims)),
        results=techniques.result_grids(portrait, site.comparisons, "../"),
        source=techniques.source_text(portrait),
    )


KIND = PageKind(pages=pages, jobs=jobs, place=2)
