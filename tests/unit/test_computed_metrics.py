"""A metric that is computed from others: when a result has it, and that it changes nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence

import pytest
from package_copy import TOYS, PackageCopy

from paceline.base.families.family import ComputedMetric, Metric, Observed

CASES = """
import json, sys
from paceline.base.families.family import load_family
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.spec.suites.suite_file import load_suite

suite = load_suite(content.find_suite("kernels/add-rmsnorm"))
plan = make_plan([suite], load_runner(content.find_runner("local-cpu")), Selection())
names = [m.name for m in load_family("kernels").metrics]
print(json.dumps([names, sorted(c["case_id"] for b in plan.blocks for c in b["cases"])]))
"""


def computed(
    compute: Callable[[Observed], Sequence[float]], operations: tuple[str, ...] = ()
) -> ComputedMetric:
    metric = Metric(name="toy", unit="s", better="lower", doc="", contract={})
    return ComputedMetric(metric=metric, needs=("latency",), compute=compute, operations=operations)


def observed(**samples: list[float]) -> Observed:
    return Observed(params={}, samples=samples, accounting={})


def test_a_result_has_it_where_its_operation_and_what_it_needs_are_there() -> None:
    double = computed(lambda o: [2 * s for s in o.samples["latency"]], ("one",))
    assert double.of(observed(latency=[1.0, 2.0]), "one") == [2.0, 4.0]
    assert double.of(observed(latency=[1.0]), "other") is None
    assert double.of(observed(bytes=[1.0]), "one") is None


@pytest.mark.parametrize(
    ("compute", "reason"),
    [
        (lambda o: [1.0 / 0.0], "its formula failed: ZeroDivisionError: float division by zero"),
        (lambda o: o.samples["none"], "its formula failed: KeyError: 'none'"),
        (lambda o: [float("nan")], "its formula gives no finite number"),
        (lambda o: [], "its formula gives no sample"),
    ],
)
def test_a_formula_that_gives_no_number_says_why(
    compute: Callable[[Observed], Sequence[float]], reason: str
) -> None:
    assert computed(compute).of(observed(latency=[1.0]), "any") == reason


def test_one_more_changes_no_case_and_stands_behind_the_other_metrics(copy: PackageCopy) -> None:
    names, cases = json.loads(copy.run(CASES))
    shutil.copytree(TOYS / "kernels" / "metrics", copy.family("kernels") / "metrics", dirs_exist_ok=True)
    names_with, cases_with = json.loads(copy.run(CASES))
    assert cases_with == cases and len(cases) > 1
    assert names_with == [*names, "toy_spread"]
