"""Rules of this code that neither ruff nor mypy knows."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from syntax_trees import nodes_of, tree_of

import paceline
from paceline.spec.content import shipped_root

ROOT = shipped_root()
ENGINE = sorted((ROOT / "src" / "paceline").rglob("*.py"))
BASELINES = sorted((ROOT / "baselines").rglob("*.py"))
MAX_LINES = 600
EXPLAINED_FROM = 400
MAX_BASELINE_LINES = 300
MAX_FUNCTION_LINES = 50
"""Of statements: signature and docstring do not count."""
MAX_MODULES = 20
"""Of one folder, ``__init__.py`` included: a name is found among these without reading all of them."""
LARGER_FOLDERS = {
    "families/training/api": 25,  # techniques of users import its modules by their paths
}
"""Folders with more modules than that, and how many: a number may fall here and never rise."""
BEGUN = re.compile(r'(?:#.*\n)*r?"""\s*[^"\s]')
"""How a module begins that says what it is."""
VAGUE = {"utils", "util", "helpers", "helper", "misc", "common"}


def card_lines(text: str) -> int:
    """Count the lines of a technique's fidelity card, which is read beside the file."""
    calls = (n for n in nodes_of(text) if isinstance(n, ast.Call))
    cards = (k for c in calls for k in c.keywords if k.arg == "fidelity" and isinstance(k.value, ast.Dict))
    return sum((k.end_lineno or k.lineno) - k.lineno + 1 for k in cards)


def over_long(files: list[Path], limit: int) -> list[str]:
    longer = {p: text for p in files if len((text := p.read_text()).splitlines()) > limit}
    counts = {p: len(text.splitlines()) - card_lines(text) for p, text in longer.items()}
    return [f"{p.relative_to(ROOT)}: {n} lines, at most {limit}" for p, n in counts.items() if n > limit]


def crowded(modules: list[Path], folder: Path, larger: Mapping[str, int]) -> list[str]:
    """Return folders that hold more modules than they may, and exceptions that hold fewer than they are granted."""
    counts = Counter(p.parent.relative_to(folder).as_posix() for p in modules)
    full = [
        f"{name}: {count} modules, at most {larger.get(name, MAX_MODULES)}: divide it by what they are about"
        for name, count in counts.items()
        if count > larger.get(name, MAX_MODULES)
    ]
    return full + [
        f"{name}: {counts[name]} modules, not {granted}: lower its exception"
        for name, granted in larger.items()
        if counts[name] < granted
    ]


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function's statements, without signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = tree_of(path.read_text())
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_modules_are_short_enough_to_be_read() -> None:
    assert over_long(ENGINE, MAX_LINES) == []
    assert over_long(BASELINES, MAX_BASELINE_LINES) == []


def test_a_long_module_explains_itself() -> None:
    long = [p for p in ENGINE if len(p.read_text().splitlines()) > EXPLAINED_FROM]
    texts = {p: ast.get_docstring(tree_of(p.read_text())) or "" for p in long}
    assert [str(p) for p, text in texts.items() if len(text.splitlines()) < 3] == []


def test_functions_are_short() -> None:
    long = [
        f"{p.relative_to(ROOT)}:{f.lineno} {f.name}: {body_lines(f)} lines"
        for p in (*ENGINE, *BASELINES)
        for f in functions(p)
        if body_lines(f) > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_a_card_does_not_make_a_technique_longer() -> None:
    text = "@technique(\n    name='x',\n    fidelity={\n        'a': 1,\n    },\n)\ndef f(): ...\n"
    assert card_lines(text) == 3
    assert card_lines(text.replace("fidelity", "properties")) == 0


def test_lines_are_counted_without_signature_and_docstring() -> None:
    (function,) = tree_of(
        'def f(\n    a,\n):\n    """Doc\n    string."""\n    b = a\n    return (\n        b\n    )\n'
    ).body
    assert isinstance(function, ast.FunctionDef)
    assert body_lines(function) == 4


def test_every_module_begins_with_what_it_is() -> None:
    assert [str(p) for p in (*ENGINE, *BASELINES) if not BEGUN.match(p.read_text())] == []


@pytest.mark.parametrize("text", ['"""Says it."""\n', '# a licence\nr"""\nSays it.\n"""\n'])
def test_a_module_may_say_what_it_is_behind_comments(text: str) -> None:
    assert BEGUN.match(text)


@pytest.mark.parametrize(
    "text", ["", '""""""\n', '"""   """\n', '"""\n\n"""\n', '# says it\nimport ast\n"""late"""\n']
)
def test_a_module_that_says_nothing_is_found(text: str) -> None:
    assert not BEGUN.match(text)


def test_modules_are_named_by_a_noun_and_not_by_their_place() -> None:
    assert [str(p) for p in ENGINE if p.stem in VAGUE or p.parent.name in VAGUE] == []


def test_a_folder_holds_few_modules() -> None:
    assert crowded(ENGINE, ROOT / "src" / "paceline", LARGER_FOLDERS) == []


def test_a_crowded_folder_is_refused_and_so_is_an_exception_that_is_too_wide(tmp_path: Path) -> None:
    for name, count in {"rooms": 20, "rooms/hall": 21, "api": 23}.items():
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"module_{number}.py").touch()
    planted = sorted(tmp_path.rglob("*.py"))
    (refused,) = crowded(planted, tmp_path, {"api": 23})
    assert refused == "rooms/hall: 21 modules, at most 20: divide it by what they are about"
    assert crowded(planted, tmp_path, {"rooms/hall": 21, "api": 24}) == [
        "api: 23 modules, not 24: lower its exception"
    ]


@pytest.mark.parametrize("name", sorted(paceline.__all__))
def test_the_public_names_exist(name: str) -> None:
    assert getattr(paceline, name) is not None


def test_the_public_interface_is_small_and_stated() -> None:
    assert len(paceline.__all__) == len(set(paceline.__all__)) <= 20
    assert paceline.__all__ == sorted(paceline.__all__)
