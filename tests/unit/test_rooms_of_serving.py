"""An operation of serving is a folder: without it the family has one operation less, with one more it has one more."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from package_copy import PackageCopy

from paceline.base.families.family import load_family
from paceline.families.serving import api
from paceline.families.serving.core.sealed import all_loaded

OPERATIONS = tuple(load_family("serving").operations)
PLANS_ALL_OTHERS = """
import sys
from paceline.base.families.family import load_family
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite

removed = sys.argv[1]
assert removed not in load_family("serving").operations
assert removed not in load_family("serving").parameter("op").choices
runner = load_runner(content.find_runner("local-cpu"))
paths = [p for name, p in content.suite_files().items() if name.startswith("serving/")]
paths = [p for p in paths if f"op: {removed}" not in p.read_text()]
plan = make_plan([load_suite(p) for p in paths], runner, Selection(tier="quick"))
assert plan.blocks
print(len(paths))
"""
TOY = """
from paceline.base.families.operation import Operation
from paceline.families.serving.core.planning.parameters import REQUESTS
from paceline.families.serving.core.planning.metrics import PREFIX_CACHE_HIT_RATE

OPERATION = Operation(
    name="toy",
    summary="a toy.",
    parameters=(REQUESTS,),
    metrics=(PREFIX_CACHE_HIT_RATE,),
    check=lambda params: ["a toy is checked"],
    estimate_s=lambda params: 1.0,
)
"""
SEES_THE_TOY = """
from paceline.base.families.family import load_family

family = load_family("serving")
assert "toy" in family.parameter("op").choices
assert "toy: a toy." in family.parameter("op").doc
assert [p.name for p in family.parameters_for("toy")] == ["op", "requests"]
assert family.check({"op": "toy"}) == ["a toy is checked"]
assert family.runner_module("toy") == "paceline.families.serving.ops.toy.run"
"""


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.one_in(20)
def test_without_its_folder_an_operation_is_gone_and_all_other_suites_can_be_planned(
    operation: str, copy: PackageCopy
) -> None:
    copy.without("serving", operation)
    assert int(copy.run(PLANS_ALL_OTHERS, operation)) > 0


def test_a_new_folder_is_a_new_operation(copy: PackageCopy) -> None:
    folder = copy.family("serving") / "ops" / "toy"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "spec.py").write_text(TOY)
    copy.run(SEES_THE_TOY)


HELD_BY_HAND_BEFORE = {
    "distribute": (
        *("api.distributing", "api.layers", "api.paged", "api.costs"),
        *("core.engine.core", "core.engine.model", "core.engine.reference", "core.engine.stepper"),
        *("core.simulation.cluster", "core.simulation.costs", "core.simulation.laws", "core.simulation.log"),
        *(
            "core.simulation.profiling",
            "ops.distribute.candidate",
            "ops.distribute.played",
            "ops.distribute.script",
        ),
    ),
    "denoise": (
        *("api.denoising", "api.denoiser", "api.sampler", "core.simulation.profiling"),
        *("ops.denoise.candidate", "ops.denoise.images", "ops.denoise.journal", "ops.denoise.network"),
    ),
}


@pytest.mark.parametrize("operation", sorted(HELD_BY_HAND_BEFORE))
def test_all_that_draws_counts_and_judges_in_ranks_is_sealed(operation: str) -> None:
    runner = importlib.import_module(f"paceline.families.serving.ops.{operation}.run")
    often = {m.__name__ for m in runner.sealed((operation,))}
    seldom = {m.__name__ for m in runner.sealed_seldom((operation,))}
    wanted = {f"paceline.families.serving.{name}" for name in HELD_BY_HAND_BEFORE[operation]}
    assert wanted | {"paceline.worker.communication.comm"} <= seldom
    assert f"paceline.families.serving.ops.{operation}.candidate" in often <= seldom
    assert (
        f"paceline.families.serving.core.{'load.log.outcomes' if operation == 'distribute' else 'results'}"
        in seldom
    )


def test_what_techniques_may_build_on_is_sealed_before_one_of_them_loads_it() -> None:
    names = {m.__name__ for m in all_loaded()}
    found = {f"{api.__name__}.{m.name}" for m in pkgutil.iter_modules(api.__path__)}
    assert found <= names
