"""``paceline new technique --op`` begins a technique of any operation, and ``paceline show`` says what it is given."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from syntax_trees import tree_of

from paceline.base.errors import UserError
from paceline.base.families.family import family_names, load_family
from paceline.cli import application
from paceline.spec import content
from paceline.spec.own.techniques import declared, suites_for
from paceline.workflows.conformance import points_of

EVERY = [
    f"{name}/{operation}"
    for name in family_names()
    if not load_family(name).internal
    for operation in load_family(name).operations
    if operation != "custom"
]


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application, [str(a) for a in arguments])


@pytest.mark.parametrize("place", EVERY)
@pytest.mark.one_in(4)
def test_a_technique_of_any_operation_is_begun_without_the_paper_of_its_model(
    place: str, tmp_path: Path
) -> None:
    path = tmp_path / "my_own.py"
    result = invoke("new", "technique", "my-lab/my-own", "--op", place, "--output", path)
    assert result.exit_code == 0, result.exception
    (source,) = declared(path)
    family, _, operation = place.partition("/")
    assert (source.info.name, source.info.family) == ("my-lab/my-own", family)
    assert source.info.implements == (operation,)
    assert source.info.paper is source.info.fidelity is None
    assert invoke("validate", path).exit_code == 0
    text = path.read_text()
    compile(text, str(path), "exec")
    for argument in load_family(family).operations[operation].arguments:
        assert f"  {argument.text}"[:100] in text
    assert (f"paceline check {path}" in result.stdout) == bool(points_of(family, operation, brief=True))
    if suites := suites_for(source):
        assert f"paceline run {suites[0]} --tier quick --technique {path}" in result.stdout


def test_what_is_begun_is_the_models_code_under_another_name(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    assert invoke("new", "technique", "one", "--op", "reasoning/solve", "--output", path).exit_code == 0
    model = content.techniques("reasoning")["greedy"].path.read_text()
    old, new = (
        next(n for n in tree_of(t).body if isinstance(n, ast.FunctionDef)) for t in (model, path.read_text())
    )
    assert (old.name, new.name) == ("greedy", "one")
    assert [ast.dump(n) for n in old.body] == [ast.dump(n) for n in new.body]


def test_a_kernels_run_has_the_arguments_by_name(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    assert invoke("new", "technique", "one", "--op", "gemm", "--output", path).exit_code == 0
    assert "def run(self, a: Tensor, b: Tensor, c: Tensor) -> None:" in path.read_text()


@pytest.mark.parametrize(
    ("name", "operation", "told"),
    [
        ("x", "gemmm", "kernels/gemm"),
        ("x", "churn", "collectives/churn, training/churn"),
        ("training/x", "gemm", "'gemm' is no operation of training"),
        ("x", "custom", "paceline kernel --help"),
    ],
)
def test_an_operation_that_cannot_be_begun_is_an_error(
    name: str, operation: str, told: str, tmp_path: Path
) -> None:
    result = invoke("new", "technique", name, "--op", operation, "--output", tmp_path / "x.py")
    assert isinstance(result.exception, UserError)
    assert told in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_an_operation_is_shown_with_the_order_shapes_and_types_of_its_arguments() -> None:
    card = json.loads(invoke("show", "grouped_gemm", "--json").stdout)
    assert [text.split()[0] for text in card["run"]] == ["x", "offsets", "w", "y"]
    assert card["run"][1].startswith("offsets (experts + 1,), int64, read; expert e has rows")
    assert card["run"][3] == "y (tokens, n), dtype, to be filled"
    assert card["begin"] == "paceline new technique NAME --op kernels/grouped_gemm"
