"""Every message that the troubleshooting page quotes is one that the program says."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from syntax_trees import tree_of

from paceline.base.counting import plural_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^\| `([^`]+)`", PAGE, re.M)
HOLE = "…"
"""Stands for what a message fills in."""


@cache
def said() -> str:
    """Return every text of the program, one a line, with holes where values go."""
    files = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "setup").glob("*.py"),
        *(ROOT / "containers").glob("*.py"),
    ]
    lines = [text for path in files for text in texts(tree_of(path.read_bytes()))]
    return "\n".join(lines)


def part(value: ast.expr) -> str:
    """Return a part of an f-string; a counted noun is shown as several."""
    if isinstance(value, ast.Constant):
        return str(value.value)
    call = value.value if isinstance(value, ast.FormattedValue) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "number_of":
        words = [str(word.value) for word in call.args[1:] if isinstance(word, ast.Constant)]
        return f"{HOLE} {words[1] if len(words) > 1 else plural_of(words[0])}"
    return HOLE


def texts(tree: ast.AST) -> list[str]:
    """Return the strings of a module, f-strings with holes."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(part(v) for v in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def test_the_page_quotes_messages() -> None:
    assert len(QUOTED) > 25


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_one_of_the_program(message: str) -> None:
    assert message in said(), message


def test_a_message_that_nobody_says_is_found() -> None:
    assert "the machine is haunted" not in said()
    assert texts(tree_of('x = f"a {b} c" "d"'))[0] == f"a {HOLE} cd"
    assert texts(tree_of("f\"{number_of(n, 'launch')}\""))[0] == f"{HOLE} launches"
