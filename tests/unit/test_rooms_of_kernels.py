"""An operation of kernels is a folder: without it the family has one operation less, with one more it has one more."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys

import pytest
from package_copy import PACKAGE, PackageCopy
from syntax_trees import nodes_of

from paceline.base.families.family import load_family
from paceline.families.kernels import api

FAMILY = PACKAGE / "families" / "kernels"
OPERATIONS = tuple(load_family("kernels").operations)
PLANS_ALL_OTHERS = """
import sys
from paceline.base.families.family import load_family
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite

removed = sys.argv[1]
assert removed not in load_family("kernels").operations
assert removed not in load_family("kernels").parameter("op").choices
runner = load_runner(content.find_runner("local-cpu"))
paths = [p for name, p in content.suite_files().items() if name.startswith("kernels/")]
paths = [p for p in paths if removed not in p.read_text()]
plan = make_plan([load_suite(p) for p in paths], runner, Selection(tier="quick"))
assert plan.blocks
print(len(paths))
"""
TOY_SPEC = """
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import SIZE_BYTES

OPERATION = timed(
    name="toy",
    place=99,
    summary="a toy.",
    parameters=(SIZE_BYTES,),
    arithmetic=Arithmetic(flops=lambda p: 10.0, traffic=lambda p: 2.0 * integer(p, "size_bytes")),
    check=lambda params: ["a toy is checked"],
)
"""
SEES_THE_TOY = """
from paceline.base.families.family import load_family

family = load_family("kernels")
assert family.parameter("op").choices[-1] == "toy"
assert "toy: a toy." in family.parameter("op").doc
assert [p.name for p in family.parameters_for("toy")] == ["op", "dtype", "threads", "reference_timer", "size_bytes"]
assert family.check({"op": "toy"}) == ["a toy is checked"]
assert family.runner_module("toy") == "paceline.families.kernels.ops.toy.run"
assert family.is_isolated("toy")
point = {"op": "toy", "size_bytes": 40}
assert {d.name: d.of(point, 2.0) for d in family.derived} == {"arithmetic_rate": 5.0, "bandwidth": 40.0}
"""
SEALED = """
from paceline.families.kernels.core.sealed import all_loaded
from paceline.families.kernels.core.timing_process import server

print(*(module.__name__ for module in all_loaded()))
"""


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.one_in(20)
def test_without_its_folder_an_operation_is_gone_and_all_other_suites_can_be_planned(
    operation: str, copy: PackageCopy
) -> None:
    copy.without("kernels", operation)
    assert int(copy.run(PLANS_ALL_OTHERS, operation)) > 0


def test_a_new_folder_is_a_new_operation(copy: PackageCopy) -> None:
    folder = copy.family("kernels") / "ops" / "toy"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "spec.py").write_text(TOY_SPEC)
    copy.run(SEES_THE_TOY)


def named_in(room: str) -> list[str]:
    """Return where a room's code has the name of an operation as a text, or asks for a point's ``op``."""
    place = FAMILY / room
    found = []
    for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
        for node in nodes_of(path.read_text()):
            if isinstance(node, ast.Constant) and node.value in OPERATIONS:
                found.append(f"{path.name}:{node.lineno}")
    return found


@pytest.mark.parametrize("room", ["spec.py", "core", "api"])
def test_nobody_but_the_operations_themselves_knows_their_names(room: str) -> None:
    assert named_in(room) == []


HELD_BY_HAND_BEFORE = frozenset(
    {
        *("server", "working_set", "kept_memory", "passes", "profiling", "graph_replay", "tasks"),
        "reference_timers",
    }
)
BESIDE_THE_FAMILY = frozenset(
    {
        *("builtins", "json", "json.encoder", "socket"),
        *("paceline.worker.channel", "paceline.worker.fences.guard", "paceline.worker.ranks.loading"),
    }
)


def test_all_that_times_and_watches_in_a_techniques_process_is_sealed_with_what_it_may_build_on() -> None:
    done = subprocess.run([sys.executable, "-c", SEALED], capture_output=True, text=True, check=True)
    sealed = set(done.stdout.split())
    assert {f"paceline.families.kernels.core.timing_process.{name}" for name in HELD_BY_HAND_BEFORE} <= sealed
    assert sealed >= BESIDE_THE_FAMILY
    assert {f"{api.__name__}.{m.name}" for m in pkgutil.iter_modules(api.__path__)} <= sealed
