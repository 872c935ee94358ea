"""Counted nouns: one point and not one points, wherever a number is written with what it counts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from syntax_trees import nodes_of

from paceline.base import counting
from paceline.base.counting import number_of, plural_of
from paceline.spec import content

SOURCE = Path(counting.__file__).parents[1]
NO_NUMBERS = frozenset(
    {"what", "kind", "where", "name", "trace", "slices", "number", "ranks if not lacking else 'all'"}
)
"""Expressions whose value is a text, where a noun that is counted elsewhere follows."""
EXEMPT = {
    "families/programs/api/aggregation.py": "it imports nothing of the engine",
    "families/serving/ops/predict/gate.py": "names that records keep",
    "records/identity.py": "classes of hosts, which are names",
    "records/imports/pytest_benchmark.py": "classes of hosts",
}


@pytest.mark.parametrize(
    ("number", "noun", "plural", "form", "written"),
    [
        (0, "point", None, "", "0 points"),
        (1, "point", None, "", "1 point"),
        (2, "launch", None, "", "2 launches"),
        (3, "entry", None, "", "3 entries"),
        (3, "day", None, "", "3 days"),
        (2, "class", None, "", "2 classes"),
        (1, "result is", "results are", "", "1 result is"),
        (0, "result is", "results are", "", "0 results are"),
        (1234, "token", None, ",", "1,234 tokens"),
        (1.2, "call", None, ".0f", "1 call"),
        (1.2, "call", None, "g", "1.2 calls"),
    ],
)
def test_a_noun_is_singular_for_what_is_shown_as_one(
    number: float, noun: str, plural: str | None, form: str, written: str
) -> None:
    assert number_of(number, noun, plural, form=form) == written


@cache
def nouns() -> frozenset[str]:
    """Return the plurals of all nouns that the source counts."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in nodes_of(text) if "number_of(" in text else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "number_of":
                noun = node.args[1]
                if isinstance(noun, ast.Constant) and " " not in str(noun.value):
                    found.add(plural_of(str(noun.value)))
    return frozenset(found)


def plurals_behind_numbers(text: str, known: Set[str]) -> Iterator[str]:
    """Yield where a text of Python writes a plural behind whatever number; constants are known to be several."""
    behind = re.compile(rf" ({'|'.join(sorted(known))})\b")
    for node in nodes_of(text):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for value, after in pairwise(parts):
            if (
                not isinstance(value, ast.FormattedValue)
                or value.conversion == ord("r")
                or not isinstance(after, ast.Constant)
            ):
                continue
            said, shown = ast.unparse(value.value), behind.match(str(after.value))
            constant = re.fullmatch(r"([\w.]*\.)?[A-Z][A-Z_]+", said)
            if shown and not constant and said not in NO_NUMBERS and ".join(" not in said:
                yield f"{said}{shown[0]}"


def test_every_number_is_written_with_its_noun_by_one_function() -> None:
    known = nouns()
    assert {"points", "blocks", "mistakes", "launches"} <= known
    found = [
        f"{path.relative_to(SOURCE)}: {place}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).as_posix() not in EXEMPT
        for place in plurals_behind_numbers(path.read_text(encoding="utf-8"), known)
    ]
    assert found == []


def test_pages_count_by_the_same_function() -> None:
    behind = re.compile(rf"\}}\}} ({'|'.join(sorted(nouns()))})\b")
    pages = sorted((content.report_templates() / "templates").glob("*.html"))
    # so many runs are compared whatever there is
    found = [
        f"{page.name}: {match[0]}"
        for page in pages
        for match in behind.finditer(page.read_text(encoding="utf-8").replace("{{ newest_runs }} runs", ""))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ['f"{len(found)} points"', 'f"{checked} files checked"', "f'in {plan.num_blocks} blocks, {x}'"]
)
def test_a_plural_behind_a_number_is_found(text: str) -> None:
    assert list(plurals_behind_numbers(text, {"points", "files", "blocks"}))
    assert not list(
        plurals_behind_numbers(text.replace("{", "{MOST_").upper(), {"points", "files", "blocks"})
    )
