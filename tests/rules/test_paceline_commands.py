"""What tests measure by the command line draws from their module's seed, and no test calls it another way."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import paceline_commands
import pytest
import seeds
import three_suites
from syntax_trees import nodes_of

from paceline.spec.plans.plan import Selection

TESTS = Path(__file__).parents[1]
MODULE = "paceline.cli"
OWN = "paceline_commands.py"


@pytest.fixture(autouse=True)
def known_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds, "_current", 40)


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        (("run", "a", "--quiet"), ["run", "--seed=40", "a", "--quiet"]),
        (("load", "http://here"), ["load", "--seed=40", "http://here"]),
        (("job", "export", "a"), ["job", "export", "--seed=40", "a"]),
        (("job", "collect", "a"), ["job", "collect", "a"]),
        (("run", "a", "--seed", 7), ["run", "a", "--seed", "7"]),
        (("run", "a", "--seed=7"), ["run", "a", "--seed=7"]),
        (("run", "--resume", "a"), ["run", "--resume", "a"]),
        (("doctor", "--clean"), ["doctor", "--clean"]),
        ((), []),
    ],
)
def test_what_has_the_option_gets_the_seed_where_it_is_given_none(
    given: tuple[object, ...], arguments: list[str]
) -> None:
    assert paceline_commands.arguments(*given) == arguments
    assert paceline_commands.command(*given)[1:] == ["-m", MODULE, *arguments]


def test_runs_of_one_test_that_are_to_draw_otherwise_do() -> None:
    assert paceline_commands.arguments("run", "a", draw=2) == ["run", "--seed=42", "a"]
    assert paceline_commands.command("nightly", draw=2)[-2:] == ["42", "nightly"]


def test_plans_of_this_process_follow_from_a_seed_until_it_is_taken_back() -> None:
    with paceline_commands.fixed_plans(5):
        assert (Selection().seed, Selection(seed=None).seed, Selection(seed=7).seed) == (5, 5, 7)
    assert Selection().seed is None


def test_a_command_without_the_option_has_plans_that_follow_from_the_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paceline_commands, "WITHOUT_SEED", frozenset({"plan"}))
    monkeypatch.setattr(paceline_commands, "WITH_SEED", ())
    command = paceline_commands.command("plan", "calibration/same-work", "--runner", "fake", "--json")
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert (told["seed"], told["fixed_seed"]) == (40, True)


def spelled(text: str) -> list[int]:
    """Return the lines on which a program names the command line's module as an argument."""
    return [
        node.lineno
        for node in nodes_of(text)
        if isinstance(node, ast.List | ast.Tuple | ast.Call)
        for part in (node.args if isinstance(node, ast.Call) else node.elts)
        if isinstance(part, ast.Constant) and part.value == MODULE
    ]


def test_a_command_line_that_is_written_out_is_found() -> None:
    assert spelled('run([sys.executable, "-m", "paceline.cli", "run", "a"])') == [1]
    assert spelled('x = 1\nrun(sys.executable, "-m", "paceline.cli")') == [2]
    assert spelled("from paceline.cli import application") == []


@pytest.mark.parametrize("folder", [".", *sorted(three_suites.FULL_FOLDERS)])
def test_tests_that_measure_call_the_command_line_with_their_seed(folder: str) -> None:
    paths = [p for p in (TESTS / folder).glob("*.py") if p.name != OWN]
    assert paths
    found = [f"{p.relative_to(TESTS)}:{line}" for p in paths for line in spelled(p.read_text())]
    assert found == [], "call it by paceline_commands.command, which gives it the module's seed"
