"""Series over the nights: a list, and a page for each board and metric."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from paceline.report.runs import trends
from paceline.report.site.data import File, PageKind, Site, one
from paceline.report.site.forks import Job


def pages(site: Site) -> Iterator[File]:
    """Yield the list."""
    yield "trends.html", trends_page(site)


def jobs(site: Site) -> Iterator[Job]:
    """Yield a job for each trend."""
    return (trend_job(site, trend) for trend in site.trends)


def trend_job(site: Site, trend: trends.Trend) -> Job:
    """Return a job; what is told of its nights is an input."""
    nights = {n.run_id for h in trend.series for n in h.nights}
    nights |= {late.run_id for h in trend.series for late in h.left_out}
    told = [(n, site.run_hrefs.get(n), site.given.loaded.notes(n)) for n in sorted(nights)]
    board = trend.board
    where = (board.slug, board.suite, board.family, board.host_class, board.runner, board.image_class)
    inputs = ("trend", where, trend.name, trend.href, trend.case_href, trend.series, told)
    records = [r for r in site.records if r.run_id in nights]
    return site.kept(records, inputs, [trend.href], partial(one, trend.href, trend_page, site, trend))


def trends_page(site: Site) -> str:
    """Return the list."""
    series = [h for t in site.trends for h in t.series]
    return site.render(
        "trends.html",
        root="",
        alerts=trends.alert_grid(site.alerts),
        changes=trends.change_grid(site.trends),
        series=trends.list_grid(site.trends),
        left_out=trends.left_out(site.trends),
        blindness=trends.blindness(site.trends),
        num_series=len(series),
        num_seeing=sum(h.blind_nights == 0 for h in series),
    )


def trend_page(site: Site, trend: trends.Trend) -> str:
    """Return the page of one trend."""
    loaded = site.given.loaded
    return site.render(
        "trend.html",
        root="../",
        trend=trend,
        charts=trends.trend_charts(trend, loaded),
        nights=trends.night_grid(trend, loaded, site.run_hrefs),
    )


KIND = PageKind(pages=pages, jobs=jobs, place=4)
