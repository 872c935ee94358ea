"""An operation of training is a folder: adding one is adding it, removing one is removing it; nobody else knows it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import paceline
from paceline.base.family import load_family
from paceline.spec import content

SOURCE = Path(paceline.__file__).parent
FAMILY = SOURCE / "families" / "training"
OPERATIONS = tuple(load_family("training").operations)
PLANNED = "sharding"
"""A suite of data parallelism, planned as well as loaded wherever data parallelism is left."""
CHECK = """
import sys
from pathlib import Path
from paceline.base.family import load_family
from paceline.spec import content
from paceline.spec.plan import Selection, make_plan
from paceline.spec.profile import load_runner
from paceline.spec.suite import load_suite

assert Path(content.__file__).is_relative_to(sys.argv[1]), content.__file__
suites = [load_suite(Path(path)) for path in sys.argv[3:]]
planned = [s for s in suites if s.model.suite == f"training/{sys.argv[2]}"]
if planned:
    assert make_plan(planned, load_runner(content.find_runner("local-cpu")), Selection()).blocks
print(*load_family("training").operations, len(suites))
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Return a copy of the package in a checkout with everything else as it is."""
    shutil.copytree(SOURCE, tmp_path / "src" / "paceline", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("suites", "runners", "baselines", "reports", "pyproject.toml"):
        (tmp_path / name).symlink_to(content.shipped_root() / name)
    return tmp_path


def look(house: Path, suites: list[Path]) -> list[str]:
    """Return the family's operations as the copy has them, and how many of the suites it can read."""
    command = [sys.executable, "-c", CHECK, str(house), PLANNED, *map(str, suites)]
    environment = os.environ | {"PYTHONPATH": str(house / "src")}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def suites_without(operation: str) -> list[Path]:
    """Return the training suites that have no points of an operation."""
    files = [path for name, path in content.suite_files().items() if name.startswith("training/")]
    named = re.compile(rf"\bop: .*\b{operation}\b")
    return [path for path in files if not named.search(path.read_text())]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_without_an_operations_folder_all_other_suites_are_read_and_planned(
    operation: str, house: Path
) -> None:
    shutil.rmtree(house / "src" / "paceline" / "families" / "training" / "ops" / operation)
    suites = suites_without(operation)
    left = [name for name in OPERATIONS if name != operation]
    assert look(house, suites) == [*left, str(len(suites))]


def test_a_new_folder_is_a_new_operation(house: Path) -> None:
    folder = house / "src" / "paceline" / "families" / "training" / "ops" / "toy"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""A toy."""\n')
    (folder / "spec.py").write_text(
        '''"""A toy."""
from dataclasses import replace
from paceline.families.training.core.legality import problems
from paceline.families.training.ops.data_parallel.spec import OPERATION as OTHER

OPERATION = replace(OTHER, name="toy", summary="nothing", place=9, check=problems)
'''
    )
    assert look(house, suites_without("toy")) == [*OPERATIONS, "toy", str(len(suites_without("toy")))]


@pytest.mark.parametrize("room", ["spec.py", "core", "api"])
def test_nobody_but_the_operations_themselves_knows_their_names(room: str) -> None:
    place = FAMILY / room
    for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant):
                assert node.value not in OPERATIONS, f"{path}:{node.lineno}"
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                assert node.slice.value != "op", f"{path}:{node.lineno}: asks which operation it is"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_the_same_files(operation: str) -> None:
    found = {path.name for path in (FAMILY / "ops" / operation).glob("*.py")}
    assert found >= {"spec.py", "parameters.py", "metrics.py", "run.py", "conformance.py"}
