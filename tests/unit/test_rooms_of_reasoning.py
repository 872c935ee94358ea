"""An operation of reasoning is a folder: without it the family has one less, with another folder it has one more."""

from __future__ import annotations

import pkgutil

import pytest
from package_copy import PackageCopy

from paceline.base.families.family import load_family
from paceline.families.reasoning import api

OPERATIONS = tuple(load_family("reasoning").operations)
PLANS_ALL_OTHERS = """
import sys
from paceline.base.families.family import load_family
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite

removed = sys.argv[1]
assert removed not in load_family("reasoning").operations
assert removed not in load_family("reasoning").parameter("op").choices
runner = load_runner(content.find_runner("local-cpu"))
paths = [p for name, p in content.suite_files().items() if name.startswith("reasoning/")]
paths = [p for p in paths if f"op: {removed}" not in p.read_text()]
plan = make_plan([load_suite(p) for p in paths], runner, Selection(tier="quick"))
assert plan.blocks
print(len(paths))
"""
TOY = """
from paceline.base.families.operation import Operation
from paceline.families.reasoning.core.planning.metrics import token_metric
from paceline.families.reasoning.core.planning.parameters import QUESTIONS

OPERATION = Operation(
    name="toy",
    summary="a toy.",
    parameters=(QUESTIONS,),
    metrics=(token_metric("toy_tokens", "A toy's tokens."),),
    check=lambda params: ["a toy is checked"],
    estimate_s=lambda params: 1.0,
)
"""
SEES_THE_TOY = """
from paceline.base.families.family import load_family

family = load_family("reasoning")
assert "toy" in family.parameter("op").choices
assert "toy: a toy." in family.parameter("op").doc
assert [p.name for p in family.parameters_for("toy")] == ["op", "questions"]
assert family.metric("toy_tokens").unit == "token"
assert family.check({"op": "toy"}) == ["a toy is checked"]
assert family.runner_module("toy") == "paceline.families.reasoning.ops.toy.run"
"""
SEALS_ALONE = """
import sys
from importlib import import_module

runner = import_module(f"paceline.families.reasoning.ops.{sys.argv[1]}.run")
print(*sorted(m.__name__.removeprefix("paceline.families.reasoning.") for m in runner.sealed((sys.argv[1],))))
"""


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.one_in(20)
def test_without_its_folder_an_operation_is_gone_and_all_other_suites_can_be_planned(
    operation: str, copy: PackageCopy
) -> None:
    copy.without("reasoning", operation)
    assert int(copy.run(PLANS_ALL_OTHERS, operation)) > 0


def test_a_new_folder_is_a_new_operation(copy: PackageCopy) -> None:
    folder = copy.family("reasoning") / "ops" / "toy"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "spec.py").write_text(TOY)
    copy.run(SEES_THE_TOY)


HELD_BY_HAND_BEFORE = {
    "api": ("requests", "tool_calls", "votes"),
    "core": (
        *(
            "answers.text",
            "estimates",
            "grading.free_text",
            "grading.service",
            "language",
            "outside",
            "pairs",
        ),
        *("problems.embedded", "problems.files", "problems.rows"),
    ),
    "core.block": ("pool", "recorded", "setting", "sources"),
    "core.questions": (
        *("executor", "lineage", "models", "reading", "refusals", "service", "state", "textual"),
    ),
    "core.recordings": ("archive", "replay", "trace_files"),
    "core.backends": (
        *("endpoint_errors", "openai_model", "pretrained", "slot_cache", "token_texts"),
        "transformers_model",
    ),
    "core.reasoner": ("cache", "decoder", "engine", "network", "sampling", "scoring", "sharing"),
}
OWN_OF = {"solve": ("gate", "figures", "run"), "call_tools": ("runtime", "task_graph", "run")}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.one_in(2)
def test_all_that_runs_counts_and_judges_is_sealed_whichever_operation_runs(
    operation: str, copy: PackageCopy
) -> None:
    found = set(copy.run(SEALS_ALONE, operation).split())
    assert {f"{room}.{name}" for room, names in HELD_BY_HAND_BEFORE.items() for name in names} <= found
    assert {f"ops.{operation}.{name}" for name in OWN_OF[operation]} <= found
    assert {f"api.{m.name}" for m in pkgutil.iter_modules(api.__path__)} <= found
