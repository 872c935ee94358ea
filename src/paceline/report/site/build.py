"""The static site: leaderboard, points, techniques, runs, claims and metrics, as files that need no server.

Every number and chart is in the pages; the one script filters and orders tables, and pages are whole without it.
The same records give the same bytes: nothing of the time, the machine or the folder that builds it enters a page, but
for the age of the harness's own tests, which is told from a day that the caller names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.report.site.data import File, Site, SiteInput
from paceline.report.site.forks import Job, at_work
from paceline.report.site.kinds import page_kinds
from paceline.report.site.page_cache import PageCache

__all__ = ["SiteInput", "render_site"]


def render_site(
    given: SiteInput, *, processes: int = 1, cache: PageCache | None = None, more_jobs: Sequence[Job] = ()
) -> Iterator[File]:
    """Return every file of the site as (path, text), the same ones whatever the other arguments.

    Args:
        given: What it shows.
        processes: How many of them make pages.
        cache: Where pages of an earlier build may lie.
        more_jobs: What else the processes have to do, last.
    """
    site, kinds = Site(given, cache), page_kinds()
    jobs = [job for kind in kinds for job in kind.jobs(site)]
    with at_work([*jobs, *more_jobs], processes if len(given.loaded.records) > 1 else 1) as made:
        for kind in kinds:
            yield from kind.pages(site)
        yield from made
