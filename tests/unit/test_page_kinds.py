"""A kind of page is a module that registers itself, and so is the layout of a family: nobody else names them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from package_copy import PackageCopy
from syntax_trees import tree_of

from paceline.base.errors import UserError
from paceline.base.families.family import load_family
from paceline.report import layouts
from paceline.report.layout import Layout, layout_of
from paceline.report.site import build, kinds

TOY = '''"""A toy's page."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.report.site.data import File, PageKind, Site


def pages(site: Site) -> Iterator[File]:
    """Yield how many runs there are."""
    yield "toy.html", f"{len(site.runs)} runs"


KIND = PageKind(pages=pages)
'''
PATHS = """
from paceline.records.store.folder import Loaded
from paceline.report.site.build import SiteInput, render_site

files = dict(render_site(SiteInput(loaded=Loaded())))
print(files.get("toy.html"), *sorted(files))
"""


def test_a_module_more_is_a_kind_of_page_more(copy: PackageCopy) -> None:
    toy, *before = copy.run(PATHS).split()
    (copy.root / "src" / "paceline" / "report" / "site" / "kinds" / "toy.py").write_text(TOY)
    *toy_with, after = copy.run(PATHS).strip().split(" ", 2)
    assert toy == "None" and toy_with == ["0", "runs"]
    assert sorted(after.split()) == sorted([*before, "toy.html"])


@pytest.mark.full  # one more is in the gate
def test_a_module_less_is_a_kind_of_page_less(copy: PackageCopy) -> None:
    _, *before = copy.run(PATHS).split()
    (copy.root / "src" / "paceline" / "report" / "site" / "kinds" / "hardware.py").unlink()
    _, *after = copy.run(PATHS).split()
    assert set(before) - set(after) == {"hardware.html"}


def test_the_site_names_no_kind() -> None:
    names = {p.stem for p in Path(kinds.__path__[0]).glob("*.py")} - {"__init__"}
    for file in (build.__file__, kinds.__file__):
        tree = tree_of(Path(str(file)).read_text())
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        assert not names & (texts | imported)


LAYOUTS = sorted(p.stem for p in Path(layouts.__path__[0]).glob("*.py") if p.stem != "__init__")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_draws_metrics_that_its_family_has(name: str) -> None:
    layout, family = layout_of(name), load_family(name)
    named = {
        *layout.swept,
        *layout.scaled,
        *layout.answers,
        *layout.quality,
        *(metric for pair in layout.loads for metric in pair),
        *(metric for split in layout.splits for metric in split.parts),
        *(metric for spec in layout.frontiers for metric in (spec.across, spec.up, spec.unless, spec.apart)),
    } - {""}
    assert named and named <= {m.name for m in family.metrics}


def test_a_family_without_a_layout_draws_nothing_of_its_own_and_an_unknown_one_is_refused() -> None:
    assert layout_of("programs") == Layout()
    with pytest.raises(UserError, match="unknown family 'layouts'"):
        layout_of("layouts")
