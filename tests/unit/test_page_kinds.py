"""A kind of page is a module: it registers itself, and the site has its pages without naming it."""

from __future__ import annotations

import ast
from pathlib import Path

from package_copy import PackageCopy

from paceline.report import kinds, site

TOY = '''"""A toy's page."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report.sitedata import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield how many runs there are."""
    yield "toy.html", f"{len(site.runs)} runs"


KIND = PageKind(pages=pages)
'''
PATHS = """
from paceline.records.store import Loaded
from paceline.report.site import SiteInput, render_site

files = dict(render_site(SiteInput(loaded=Loaded())))
print(files.get("toy.html"), *sorted(files))
"""


def test_a_module_more_is_a_kind_of_page_more(copy: PackageCopy) -> None:
    toy, *before = copy.run(PATHS).split()
    (copy.root / "src" / "paceline" / "report" / "kinds" / "toy.py").write_text(TOY)
    *toy_with, after = copy.run(PATHS).strip().split(" ", 2)
    assert toy == "None" and toy_with == ["0", "runs"]
    assert sorted(after.split()) == sorted([*before, "toy.html"])


def test_a_module_less_is_a_kind_of_page_less(copy: PackageCopy) -> None:
    _, *before = copy.run(PATHS).split()
    (copy.root / "src" / "paceline" / "report" / "kinds" / "hardware.py").unlink()
    _, *after = copy.run(PATHS).split()
    assert set(before) - set(after) == {"hardware.html"}


def test_the_site_names_no_kind() -> None:
    names = {p.stem for p in Path(kinds.__path__[0]).glob("*.py")} - {"__init__"}
    for file in (site.__file__, kinds.__file__):
        tree = ast.parse(Path(str(file)).read_text())
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        assert not names & (texts | imported)
