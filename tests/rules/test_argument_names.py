"""Errors that reach a Python caller name arguments; how errors write options, so that this can be done."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from syntax_trees import nodes_of

import paceline
from paceline.base.errors import InfrastructureError, UserError, UserErrors
from paceline.drivers.machine import lease
from paceline.spec.content import shipped_root
from paceline.workflows.argument_names import in_python, speaks_python

SOURCE = shipped_root() / "src" / "paceline"


def measure(
    *,
    tier: str = "",
    filters: Mapping[str, object] | None = None,
    techniques: Sequence[str] = (),
    results: str | None = None,
    wait_s: float = 0.0,
    allow_concurrent: bool = False,
    files: Sequence[str] = (),
) -> None:
    """Stand for a function of the API: only its arguments matter."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fix: --tier=full", "fix: tier='full'"),
        ("fix: chmod u+w /x, or --results=DIR", "fix: chmod u+w /x, or results=…"),
        ("--filter=ranks=3: no point has it", "filters={'ranks': '3'}: no point has it"),
        ("--filter=a=1 --filter=b=2: no point", "filters={'a': '1', 'b': '2'}: no point"),
        ("--techniques=ring beside the others", "techniques=['ring'] beside the others"),
        ("which --filter or --techniques leave out", "which filters or techniques leave out"),
        ("--wait=2h waits longer", "wait_s=7200 waits longer"),
        ("(--allow-concurrent measures all the same)", "(allow_concurrent=True measures all the same)"),
        ("--technique: cannot be read", "files: cannot be read"),
        ("paceline run X --tier full, or --tier=full", "paceline run X --tier full, or tier='full'"),
    ],
)
def test_an_option_becomes_the_argument_that_does_the_same(text: str, said: str) -> None:
    assert in_python(text, measure) == said
    assert in_python(said, measure) == said


@pytest.mark.parametrize(
    "text",
    [
        "--code=here measures with this package's code",
        "a--tier=full",
        "run it: paceline run collectives/all-reduce --tier full --results DIR",
    ],
)
def test_what_is_no_argument_and_what_is_in_a_command_stays(text: str) -> None:
    assert in_python(text, measure) == text


def test_a_command_is_to_be_typed_in_a_shell() -> None:
    assert in_python("fix: paceline list suites", measure) == "fix: in a shell: paceline list suites"


def test_the_same_error_is_raised_with_all_parts_in_the_callers_words() -> None:
    first = UserError("no --tier fits", where="--tier", expected="--filter=a=1", fix="paceline list suites")
    both = UserErrors([first, UserError("gone", fix="--results=DIR")])

    @speaks_python
    def run(*, tier: str = "", filters: Mapping[str, object] | None = None, results: str = "") -> None:
        raise both

    with pytest.raises(UserErrors) as caught:
        run()
    assert caught.value is both
    assert str(both).splitlines() == [
        "tier: no tier fits",
        "  expected: filters={'a': '1'}",
        "  fix: in a shell: paceline list suites",
        "gone",
        "  fix: results=…",
    ]
    assert (first.where, first.fix) == ("tier", "in a shell: paceline list suites")


def test_the_command_line_still_hears_of_options(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from paceline.cli import application

    given = ["calibration/same-work", "--runner", "fake", "--filter", "ranks=9"]
    told = CliRunner().invoke(application, ["run", *given, "--results", str(tmp_path)])
    assert "--filter=ranks=9: no point" in str(told.exception)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"filters": {"ranks": 9}}, "filters={'ranks': '9'}: no point of the suites has ranks 9"),
        ({"filters": {"nonsense": 1}}, "filters: cannot filter by 'nonsense'"),
        ({"techniques": ["nobody"]}, "techniques: no suite has the technique 'nobody'"),
        ({"runner": "local-cpu", "suite": "serving/mixed-lengths", "tier": "quick"}, "fix: tier='standard'"),
        ({"suite": []}, "fix: in a shell: paceline list suites"),
    ],
)
def test_run_names_its_arguments(given: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        paceline.run(**{"suite": "calibration/same-work", "runner": "fake", **given}, results=tmp_path)  # type: ignore[arg-type]
    assert said in str(caught.value) and "--" not in str(caught.value)


def test_load_and_claims_name_theirs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"fix: results=…"):
        paceline.load(results=tmp_path / "none")
    with pytest.raises(UserError, match=r"^family: "):
        paceline.show_claims(family="nothing")


def test_a_machine_that_is_taken_is_told_of_in_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PACELINE_STATE", str(tmp_path / "state"))
    held = lease.take("another", wait_s=0.0)
    try:
        with pytest.raises(InfrastructureError, match=r"wait_s=7200 waits longer; allow_concurrent=True"):
            paceline.run("collectives/all-reduce", tier="quick", results=tmp_path, wait_s=0.0)
    finally:
        held.release()


def texts_of_errors() -> Iterator[tuple[str, str]]:
    """Yield the texts in every ``raise`` and in every call of an error's class, with where they stand."""
    for path in sorted(SOURCE.rglob("*.py")):
        if path.is_relative_to(SOURCE / "cli"):
            continue  # a command's own errors reach nobody else
        for node in nodes_of(path.read_text(encoding="utf-8")):
            named = isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1].endswith("Error")
            if named or isinstance(node, ast.Raise):
                yield from ((f"{path}:{line}", text) for line, text in texts_in(node))


def texts_in(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts below a node, ``{}`` for what is put into them."""
    if isinstance(node, ast.JoinedStr):
        words = [str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values]
        yield node.lineno, "".join(words)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts_in(child)


def test_errors_write_an_options_value_behind_an_equals_sign() -> None:
    """Behind a space, a value could not be told from the next word of the sentence."""
    seen = 0
    wrong = []
    for where, text in texts_of_errors():
        # Commands, and options of pytest's, which our plugin adds.
        outside = re.sub(r"\b(?:paceline|hf) [a-z][^;\n]*|--paceline\S*", "", text)
        seen += len(re.findall(r"(?<![\w-])--[a-z]", outside))
        if re.search(r"(?<![\w-])--[a-z][a-z-]* (?:[A-Z]{2,}|\d|\{\}|[\w-]+=)", outside):
            wrong.append(f"{where}: {text}")
    assert wrong == []
    assert seen >= 10
