"""Tests read attributes of modules that are there: one that moved is named here, before its test is run."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from syntax_trees import tree_of

TESTS = Path(__file__).parents[1]


def modules_of(tree: ast.Module) -> dict[str, ModuleType]:
    """Return the modules of the program that a file imports by name, by the names that it gives them."""
    found: dict[str, ModuleType] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("paceline"):
            continue
        for alias in node.names:
            path = f"{node.module}.{alias.name}"
            try:
                known = importlib.util.find_spec(path)
            except ModuleNotFoundError:
                known = None  # a name of a module, or of a package that is not there
            if known is not None:
                found[alias.asname or alias.name] = importlib.import_module(path)
    return found


def bound(tree: ast.Module) -> set[str]:
    """Return names that something else than an import binds anywhere in a file."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def missing(text: str) -> Iterator[str]:
    """Yield what a file reads of modules of the program that is not there, with its line."""
    tree = tree_of(text)
    own = bound(tree)
    modules = {name: module for name, module in modules_of(tree).items() if name not in own}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and not hasattr(module, node.attr):
                yield f"line {node.lineno}: {module.__name__} has no '{node.attr}'"


@pytest.mark.parametrize(
    "folder", sorted(p.name for p in TESTS.iterdir() if p.is_dir() and p.name != "mutants")
)
def test_tests_read_what_is_there(folder: str) -> None:
    found = [
        f"{path.relative_to(TESTS)}, {problem}"
        for path in sorted((TESTS / folder).glob("*.py"))
        for problem in missing(path.read_text())
    ]
    assert not found


def test_what_has_moved_is_seen() -> None:
    text = "from paceline.stats import sequential\n\ndef test() -> None:\n    sequential.gone()\n"
    assert list(missing(text)) == ["line 4: paceline.stats.sequential has no 'gone'"]
    assert not list(missing(text.replace("def test()", "def test(sequential: object)")))
