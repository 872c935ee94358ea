"""A page for each family whose techniques one chooses by parameters: what is best where."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.base.families.family import family_names
from paceline.report.boards import choosing
from paceline.report.layout import layout_of
from paceline.report.site.data import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield a page for each family with a table."""
    for family in family_names():
        found = choosing.choices(family, site.selection.boards, site.of)
        if found:
            yield (
                f"choose/{family}.html",
                site.render(
                    "choose.html",
                    root="../",
                    family=family,
                    question=layout_of(family).question,
                    choices=found,
                ),
            )


KIND = PageKind(pages=pages)
