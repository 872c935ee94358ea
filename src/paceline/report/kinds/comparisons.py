"""Pairs of runs side by side, and the page that chooses two."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from paceline.report import comparepages
from paceline.report.forks import Job
from paceline.report.sitedata import File, PageKind, Site, one


def pages(site: Site) -> Iterator[File]:
    """Yield the page that chooses."""
    yield (
        "comparisons.html",
        site.render("comparisons.html", root="", choices=site.choices, newest_runs=comparepages.NEWEST),
    )


def jobs(site: Site) -> Iterator[Job]:
    """Yield a job for each pair."""
    return (pair_job(site, pair) for pair in comparepages.all_pairs(site.pairs, site.choices))


def pair_job(site: Site, pair: comparepages.Pair) -> Job:
    """Return a job; both runs are inputs."""
    job = partial(one, pair.href, compare_page, site, pair)
    sides = (pair.later, pair.earlier)
    names = [r.run_id for r in sides]
    return site.kept(sides, ("pair", names, pair.why), [pair.href], job)


def compare_page(site: Site, pair: comparepages.Pair) -> str:
    """Return the page of a pair."""
    sides = [(record.run, site.run_hrefs[record.run_id]) for record in (pair.later, pair.earlier)]
    return site.render("compare.html", root="../", sides=sides, shown=comparepages.side_by_side(pair))


KIND = PageKind(pages=pages, jobs=jobs, place=5)
