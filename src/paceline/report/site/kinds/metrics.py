"""Every metric of every family with its contract."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.base.families.contracts import contract_id
from paceline.base.families.family import family_names, load_family
from paceline.report.site.data import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield the page."""
    families = [f for f in map(load_family, family_names()) if not f.internal]
    rows = [(f, [(metric, contract_id(f.name, metric)) for metric in f.metrics]) for f in families]
    yield "metrics.html", site.render("metrics.html", root="", families=rows)


KIND = PageKind(pages=pages)
