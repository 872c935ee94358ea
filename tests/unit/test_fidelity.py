"""Fidelity cards: every technique of a paper has one, it agrees with the code, and a wrong one is refused."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syntax_trees import tree_of

from paceline.base.errors import UserError
from paceline.base.families.family import family_names
from paceline.base.techniques.fidelity import Constant, Fidelity
from paceline.base.techniques.technique import TechniqueSource
from paceline.cli import application
from paceline.report.boards.constants import compared_text, constants_page, rows_of
from paceline.report.boards.techniques import Portrait, constants_grid, fidelity_facts
from paceline.spec import content
from paceline.spec.own.techniques import declared

ROOT = content.shipped_root()
SOURCES = {
    f"{family}/{name}": s for family in family_names() for name, s in content.techniques(family).items()
}
OF_PAPERS = sorted(name for name, source in SOURCES.items() if source.info.paper is not None)
CARDS = sorted(name for name, source in SOURCES.items() if source.info.fidelity is not None)
RIGHT: dict[str, Any] = {
    "source": {"read": "code", "paper": "section 3", "code": "github.com/lab/probe: probe.py"},
    "deviations": ("Rows are summed in order.",),
    "constants": {
        "rows": {"here": 4, "authors": "8, probe.py"},
        "LIMIT": {"here": 0.5, "authors": "not public"},
    },
    "checked_by": ("tests/unit/test_fidelity.py::test_a_right_card_is_taken",),
}


FILE = "github.com/lab/probe: probe.py"


@cache
def functions_in(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    return frozenset(n.name for n in tree_of(path.read_text()).body if isinstance(n, ast.FunctionDef))


def missing_tests(named: Iterable[str]) -> list[str]:
    """Return the tests that do not exist, or that pytest would not collect."""
    return [
        test
        for test in named
        for path, _, function in [test.partition("::")]
        if not function.startswith("test_") or function not in functions_in(ROOT / path)
    ]


def card_of(source: TechniqueSource) -> Fidelity:
    assert source.info.fidelity is not None
    return source.info.fidelity


def written(folder: Path, card: object) -> Path:
    path = folder / "probe.py"
    path.write_text(
        '"""A probe."""\n'
        "from paceline import technique\n"
        "LIMIT = 0.5\n"
        "@technique(\n"
        '    name="lab/probe", family="collectives", implements=("all_reduce",), summary="A probe.",\n'
        f"    fidelity={card!r},\n"
        ")\n"
        "class Probe:\n"
        '    """A probe."""\n'
        "    def __init__(self, problem, comm, *, rows: int = 4) -> None:\n"
        "        pass\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("name", OF_PAPERS)
def test_every_technique_of_a_paper_has_a_card(name: str) -> None:
    card = SOURCES[name].info.fidelity
    assert card is not None, f"{SOURCES[name].where('fidelity')}: say what it was held against"
    assert card.source.paper
    assert card.source.code
    assert card.deviations
    # Where a technique has no option and no constant there is nothing to compare.
    assert card.constants or not SOURCES[name].info.options


@pytest.mark.parametrize("name", CARDS)
def test_the_tests_that_a_card_names_exist(name: str) -> None:
    assert missing_tests(card_of(SOURCES[name]).checked_by) == []


def test_a_test_that_does_not_exist_is_found() -> None:
    wrong = [
        "tests/unit/test_nothing.py::test_every_technique_of_a_paper_has_a_card",
        "tests/unit/test_fidelity.py::test_nothing",
        "tests/unit/test_fidelity.py::written",
    ]
    assert missing_tests([*wrong, "tests/unit/test_fidelity.py::test_a_right_card_is_taken"]) == wrong


def test_a_right_card_is_taken(tmp_path: Path) -> None:
    (source,) = declared(written(tmp_path, RIGHT))
    card = card_of(source)
    assert card.source.read == "code"
    assert card.constants["rows"] == Constant(here=4, authors="8, probe.py")
    assert source.settings["LIMIT"] == 0.5


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    card = copy.deepcopy(RIGHT)
    change(card)
    return card


WRONG: dict[str, tuple[object, str, str]] = {
    "no dict": ("read it", "no dict", "fidelity"),
    "no source": (changed(lambda c: c.pop("source")), "lacks 'source'", "fidelity"),
    "no deviations": (changed(lambda c: c.pop("deviations")), "lacks 'deviations'", "fidelity"),
    "no constants": (changed(lambda c: c.pop("constants")), "lacks 'constants'", "fidelity"),
    "no checks": (changed(lambda c: c.pop("checked_by")), "lacks 'checked_by'", "fidelity"),
    "unknown key": (changed(lambda c: c.update(checked="x")), "no key 'checked'", "fidelity.checked"),
    "source without code": (changed(lambda c: c["source"].pop("code")), "lacks 'code'", "fidelity.source"),
    "read by hearsay": (changed(lambda c: c["source"].update(read="blog")), "'blog'", "fidelity.source.read"),
    "empty paper": (changed(lambda c: c["source"].update(paper=" ")), "is empty", "fidelity.source.paper"),
    "empty deviations": (changed(lambda c: c.update(deviations=())), "no deviation", "fidelity.deviations"),
    "half a sentence": (
        changed(lambda c: c.update(deviations=("rows",))),
        "no sentence",
        "fidelity.deviations",
    ),
    "a lonely stop": (changed(lambda c: c.update(deviations=(".",))), "no sentence", "fidelity.deviations"),
    "constants as a list": (changed(lambda c: c.update(constants=["rows"])), "no dict", "fidelity.constants"),
    "another value": (
        changed(lambda c: c["constants"]["rows"].update(here=8)),
        "is 8, and the code 4",
        "fidelity.constants.rows",
    ),
    "another type": (
        changed(lambda c: c["constants"]["rows"].update(here=4.0)),
        "is 4.0, and the code 4",
        "fidelity.constants.rows",
    ),
    "another constant of the file": (
        changed(lambda c: c["constants"]["LIMIT"].update(here=0.25)),
        "is 0.25, and the code 0.5",
        "fidelity.constants.LIMIT",
    ),
    "a constant that is none": (
        changed(lambda c: c["constants"].update(row=c["constants"]["rows"])),
        "'row', which the file lacks",
        "fidelity.constants.row",
    ),
    "an option left out": (
        changed(lambda c: c["constants"].pop("rows")),
        "does not have the option 'rows'",
        "fidelity.constants",
    ),
    "authors who say nothing": (
        changed(lambda c: c["constants"]["rows"].update(authors="")),
        "does not say what the authors have",
        "fidelity.constants.rows",
    ),
    "a bare number": (
        changed(lambda c: c["constants"].update(rows=4)),
        "cannot be 4",
        "fidelity.constants.rows",
    ),
    "differs without a deviation": (
        changed(lambda c: c["constants"]["rows"].update(official=8, source=FILE)),
        "is 4 here and 8 in github.com/lab/probe: probe.py",
        "fidelity.constants.rows",
    ),
    "a deviation that says nothing": (
        changed(lambda c: c["constants"]["rows"].update(official=8, source=FILE, differs=" ")),
        "is 4 here and 8 in github.com/lab/probe: probe.py",
        "fidelity.constants.rows",
    ),
    "the same that is said to differ": (
        changed(lambda c: c["constants"]["rows"].update(official=4.0, source=FILE, differs="it is small")),
        "is said to differ",
        "fidelity.constants.rows",
    ),
    "a switch for a number": (
        changed(lambda c: c["constants"]["rows"].update(official=True, source=FILE)),
        "is 4 here and True in",
        "fidelity.constants.rows",
    ),
    "an official value from nowhere": (
        changed(lambda c: c["constants"]["rows"].update(official=4)),
        "does not say where its official value stands",
        "fidelity.constants.rows",
    ),
    "a source without a value": (
        changed(lambda c: c["constants"]["rows"].update(source=FILE)),
        "has a source and no value",
        "fidelity.constants.rows",
    ),
    "a source that is none": (
        changed(lambda c: c["constants"]["rows"].update(official=4, source="their code")),
        "'their code' names no source",
        "fidelity.constants.rows",
    ),
    "no test": (changed(lambda c: c.update(checked_by=())), "names no test", "fidelity.checked_by"),
    "by eye": (changed(lambda c: c.update(checked_by=("by eye",))), "names no test", "fidelity.checked_by"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_card_is_refused_at_its_place(wrong: str, tmp_path: Path) -> None:
    card, what, key = WRONG[wrong]
    path = written(tmp_path, card)
    with pytest.raises(UserError) as found:
        declared(path)
    assert what in found.value.what
    assert found.value.where == f"{path}:6:{key}"


def compared(folder: Path, **official: Any) -> TechniqueSource:
    (source,) = declared(written(folder, changed(lambda c: c["constants"]["rows"].update(official))))
    return source


def test_constants_are_the_same_or_say_why_not(tmp_path: Path) -> None:
    for value in (4, 4.0):
        (row, limit) = rows_of([compared(tmp_path, official=value, source="paper, section 4.1")])
        assert (compared_text(row.constant), compared_text(limit.constant)) == ("same", "not compared")
    (row, _) = rows_of([compared(tmp_path, official=8, source=FILE, differs="rows are short")])
    assert compared_text(row.constant) == "differs: rows are short"
    assert (row.technique, row.name) == ("collectives/lab/probe", "rows")


def test_the_page_of_constants_counts_what_nobody_compared(tmp_path: Path) -> None:
    page = constants_page(
        [compared(tmp_path, official=8, source=FILE, differs="rows are short")], command="make it"
    )
    assert "2 constants on cards: 0 same, 1 that differ by a declared deviation, 1 not compared." in page
    assert f"| collectives/lab/probe |  | rows | `4` | `8` | {FILE} | differs: rows are short |" in page
    assert "| collectives/lab/probe | LIMIT (not public) |" in page.partition("## Not compared")[2]


def test_a_card_that_hides_a_difference_does_not_validate(tmp_path: Path) -> None:
    card = changed(lambda c: c["constants"]["rows"].update(official=8, source=FILE))
    told = CliRunner().invoke(application, ["validate", str(written(tmp_path, card))])
    assert told.exit_code != 0
    assert "is 4 here and 8 in github.com/lab/probe: probe.py" in told.output
    assert "'differs', why it is another" in told.output


def test_a_card_is_shown_in_the_terminal_and_on_the_page() -> None:
    source = SOURCES["training/noloco"]
    card = card_of(source)
    shown = CliRunner().invoke(application, ["show", "training/noloco"])
    assert shown.exit_code == 0
    assert f"read: {card.source.read}" in shown.output
    assert "checked_by:" in shown.output
    portrait = Portrait(family="training", name="noloco", source=source)
    facts = fidelity_facts(portrait)
    assert [text for name, text in facts if name == "deviation"] == list(card.deviations)
    assert [text for name, text in facts if name == "checked by"] == list(card.checked_by)
    grid = constants_grid(portrait)
    assert grid is not None
    assert sum(len(rows) for rows in grid.groups) == len(card.constants)
    assert fidelity_facts(Portrait(family="training", name="gone")) == []
    assert constants_grid(Portrait(family="training", name="gone")) is None
