"""An operation of training is a folder: adding one is adding it, removing one is removing it; nobody else knows it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from package_copy import PACKAGE, PackageCopy
from syntax_trees import nodes_of

from paceline.base.families.family import load_family
from paceline.spec import content

FAMILY = PACKAGE / "families" / "training"
OPERATIONS = tuple(load_family("training").operations)
PLANNED = "sharding"
"""A suite of data parallelism, planned as well as loaded wherever data parallelism is left."""
CHECK = """
import sys
from pathlib import Path
from paceline.base.families.family import load_family
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite

suites = [load_suite(Path(path)) for path in sys.argv[2:]]
planned = [s for s in suites if s.model.suite == f"training/{sys.argv[1]}"]
if planned:
    assert make_plan(planned, load_runner(content.find_runner("local-cpu")), Selection()).blocks
print(*load_family("training").operations, len(suites))
"""


def look(copy: PackageCopy, suites: list[Path]) -> list[str]:
    """Return the family's operations as the copy has them, and how many of the suites it can read."""
    return copy.run(CHECK, PLANNED, *map(str, suites)).split()


def suites_without(operation: str) -> list[Path]:
    """Return the training suites that have no points of an operation."""
    files = [path for name, path in content.suite_files().items() if name.startswith("training/")]
    named = re.compile(rf"\bop: .*\b{operation}\b")
    return [path for path in files if not named.search(path.read_text())]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.one_in(20)
def test_without_an_operations_folder_all_other_suites_are_read_and_planned(
    operation: str, copy: PackageCopy
) -> None:
    copy.without("training", operation)
    suites = suites_without(operation)
    left = [name for name in OPERATIONS if name != operation]
    assert look(copy, suites) == [*left, str(len(suites))]


def test_a_new_folder_is_a_new_operation(copy: PackageCopy) -> None:
    folder = copy.family("training") / "ops" / "toy"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""A toy."""\n')
    (folder / "spec.py").write_text(
        '''"""A toy."""
from dataclasses import replace
from paceline.families.training.core.planning.legality import problems
from paceline.families.training.ops.data_parallel.spec import OPERATION as OTHER

OPERATION = replace(OTHER, name="toy", summary="nothing", place=99, check=problems)
'''
    )
    assert look(copy, suites_without("toy")) == [*OPERATIONS, "toy", str(len(suites_without("toy")))]


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
def test_every_operation_has_the_same_files(operation: str) -> None:
    found = {path.name for path in (FAMILY / "ops" / operation).glob("*.py")}
    assert found >= {"spec.py", "parameters.py", "metrics.py", "run.py", "conformance.py"}
