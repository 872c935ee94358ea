"""A collective is a folder: without it the family has one operation less, with one more it has one more."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from package_copy import PACKAGE, PackageCopy
from syntax_trees import nodes_of

from paceline.base.families.family import load_family
from paceline.families import collectives
from paceline.spec import content
from paceline.worker.fences.source import source_problems

FAMILY = PACKAGE / "families" / "collectives"
OPERATIONS = tuple(load_family("collectives").operations)
SCENARIOS = ("churn", "fault_localisation")
PLANS_ALL_OTHERS = """
import sys
from pathlib import Path
from paceline.base.families.family import load_family
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite

removed, *paths = sys.argv[1:]
family = load_family("collectives")
assert removed not in family.operations
assert removed not in family.parameter("op").choices
assert not [p.name for p in family.parameters if removed in p.only_for]
runner = load_runner(content.find_runner("local-cpu"))
plan = make_plan([load_suite(Path(p)) for p in paths], runner, Selection(tier="standard"))
assert plan.blocks
"""
TOY = """
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.metrics import CALL
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.parameters import SIZED

OPERATION = CollectiveOperation(
    name="toy",
    summary="A toy.",
    place=99,
    parameters=SIZED,
    metrics=CALL,
    check=lambda params: problems(params, own=["a toy is checked"]),
    estimate_s=estimate_s,
    sharded=True,
    min_ranks=3,
)
"""
SEES_THE_TOY = """
from paceline.base.families.family import load_family
from paceline.families.collectives.core.planning.sizes import element_count

family = load_family("collectives")
assert family.parameter("op").choices[-1] == "toy"
assert family.parameter("op").doc.endswith("toy: A toy.")
assert "toy" in family.parameter("size_bytes").only_for
point = {"op": "toy", "size_bytes": 28, "dtype": "float32", "ranks": 2, "payload": "gaussian"}
assert family.check(point) == ["toy needs at least 3 ranks, not 2", "a toy is checked"]
assert element_count(point) == 6
assert family.runner_module("toy") == "paceline.families.collectives.ops.toy.run"
"""


def suites_without(operation: str) -> list[str]:
    """Return the family's suites that have no points of an operation."""
    texts = {path: path.read_text() for path in content.suite_files().values()}
    named = re.compile(rf"\bop: .*\b{operation}\b")
    return [
        str(path) for path, text in texts.items() if "family: collectives" in text and not named.search(text)
    ]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.one_in(20)
def test_without_its_folder_an_operation_is_gone_and_all_other_suites_can_be_planned(
    operation: str, copy: PackageCopy
) -> None:
    copy.without("collectives", operation)
    copy.run(PLANS_ALL_OTHERS, operation, *suites_without(operation))


def test_a_new_folder_is_a_new_operation(copy: PackageCopy) -> None:
    folder = copy.family("collectives") / "ops" / "toy"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "spec.py").write_text(TOY)
    copy.run(SEES_THE_TOY)


@pytest.mark.parametrize("room", ["spec.py", "core", "api"])
def test_nobody_but_the_operations_themselves_knows_their_names(room: str) -> None:
    place = FAMILY / room
    for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
        for node in nodes_of(path.read_text()):
            if isinstance(node, ast.Constant):
                assert node.value not in OPERATIONS, f"{path}:{node.lineno}"
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                assert node.slice.value != "op", f"{path}:{node.lineno}: asks which operation it is"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_can_be_run_and_every_timed_one_says_where_techniques_must_conform(
    operation: str,
) -> None:
    runner = importlib.import_module(load_family("collectives").runner_module(operation))
    assert callable(runner.run_block)
    conformance = FAMILY / "ops" / operation / "conformance.py"
    assert conformance.is_file() == (operation not in SCENARIOS)


def test_techniques_may_import_what_they_build_on_and_nothing_that_judges_them(tmp_path: Path) -> None:
    names = [m.name for m in pkgutil.walk_packages(collectives.__path__, f"{collectives.__name__}.")]
    assert f"{collectives.__name__}.core.oracle" in names
    source = tmp_path / "technique.py"
    for name in names:
        package, _, module = name.rpartition(".")
        source.write_text(f"from {package} import {module}\n")
        given = name.startswith(f"{collectives.__name__}.api.")
        assert bool(source_problems(source)) != given, name
