"""Pairs of runs side by side, and the page on which any two techniques, machines or runs are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from paceline.report.boards import pairs
from paceline.report.runs import comparison
from paceline.report.site.data import File, PageKind, Site, one
from paceline.report.site.forks import Job


def pages(site: Site) -> Iterator[File]:
    """Yield the page that chooses."""
    boards = [(board, pairs.techniques_of(board)) for board in site.selection.boards]
    yield (
        "comparisons.html",
        site.render(
            "comparisons.html",
            root="",
            pairs=[
                {
                    "family": board.family,
                    "suite": board.suite,
                    "place": pairs.place_name(board),
                    "href": pairs.pair_href(board),
                    "names": names,
                }
                for board, names in boards
                if len(names) > 1
            ],
            machines=site.machines,
            choices=site.choices,
            newest_runs=comparison.NEWEST,
        ),
    )


def jobs(site: Site) -> Iterator[Job]:
    """Yield a job for each pair."""
    return (pair_job(site, pair) for pair in comparison.all_pairs(site.pairs, site.choices))


def pair_job(site: Site, pair: comparison.Pair) -> Job:
    """Return a job; both runs are inputs."""
    job = partial(one, pair.href, compare_page, site, pair)
    sides = (pair.later, pair.earlier)
    names = [r.run_id for r in sides]
    return site.kept(sides, ("pair", names, pair.why), [pair.href], job)


def compare_page(site: Site, pair: comparison.Pair) -> str:
    """Return the page of a pair."""
    sides = [(record.run, site.run_hrefs[record.run_id]) for record in (pair.later, pair.earlier)]
    return site.render(
        "compare.html", root="../", sides=sides, shown=comparison.side_by_side(pair, site.usable)
    )


KIND = PageKind(pages=pages, jobs=jobs, place=5)
