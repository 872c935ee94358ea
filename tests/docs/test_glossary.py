"""The glossary explains what a name does not say by itself, and nothing that is not there any more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.base import aliases
from paceline.base.families.family import family_names, load_family

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
KNOWN = {
    "Parameters": {(p.name, f) for f in family_names() for p in load_family(f).parameters},
    "Metrics": {(m.name, f) for f in family_names() for m in load_family(f).metrics},
}
NEEDED = {
    "Parameters": {new for names in aliases.PARAMETERS.values() for new in names.table.values()},
    "Metrics": set(aliases.METRICS.table.values()),
}


def entries(page: str, section: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the names and the families of every line in a section's table."""
    text = page.split(f"\n## {section}\n")[1].split("\n## ", maxsplit=1)[0]
    for names, families in re.findall(r"^\| (`[^|]+) \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE):
        yield re.findall(r"`([^`]+)`", names), families.split(", ")


def mistakes(page: str, section: str) -> list[str]:
    """Return what is wrong with a section: unknown or missing names, families that lack them, the order."""
    rows = list(entries(page, section))
    found = [
        f"{name} is no name of {family}"
        for names, families in rows
        for name in names
        for family in families
        if (name, family) not in KNOWN[section]
    ]
    explained = {name for names, _ in rows for name in names}
    found += [f"{name} has no line" for name in sorted(NEEDED[section] - explained)]
    first = [names[0] for names, _ in rows]
    return found + ([] if first == sorted(set(first)) else ["the lines are not in order"])


@pytest.mark.parametrize("section", KNOWN)
def test_the_glossary_is_true_and_explains_names_that_were_changed(section: str) -> None:
    assert mistakes(PAGE, section) == []


def test_words_are_in_order_and_explained_once() -> None:
    words = re.findall(r"^\| \*\*([^*]+)\*\* \|", PAGE, re.MULTILINE)
    assert words == sorted(set(words))


def test_a_glossary_that_is_not_true_is_found() -> None:
    line = next(x for x in PAGE.splitlines() if x.startswith("| `epsilon`"))
    assert mistakes(PAGE.replace(line, ""), "Parameters") == ["epsilon has no line"]
    other = line.replace("training", "serving")
    assert mistakes(PAGE.replace(line, other), "Parameters") == ["epsilon is no name of serving"]
    moved = PAGE.replace(line + "\n", "").replace("\n| `absent_rank`", f"\n{line}\n| `absent_rank`")
    assert mistakes(moved, "Parameters") == ["the lines are not in order"]
