"""Every technique of training's operations without ranks passes its gate at odd sizes, at each point that it is for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import seeds
from once import once

from paceline.base.families.family import load_family
from paceline.spec import content
from paceline.workflows.conformance import ConformanceResult, conformance

FAMILY = "training"
OPERATIONS = ("coded_gradients", "influence", "objective")
CASES = sorted(
    (operation, name)
    for name, source in content.techniques(FAMILY).items()
    for operation in set(source.info.implements) & set(OPERATIONS)
)

pytestmark = pytest.mark.timeout(1500)
"""The first test of an operation waits for all its techniques."""

Results = Callable[[str], list[ConformanceResult]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    @once
    def of(operation: str) -> list[ConformanceResult]:
        names = [name for o, name in CASES if o == operation]
        folder = tmp_path_factory.mktemp(operation)
        operations = (operation,)
        return conformance(
            names, family=FAMILY, operations=operations, ranks=(1,), folder=folder, seed=seeds.current()
        )

    return of


def test_these_are_the_operations_without_ranks() -> None:
    family = load_family(FAMILY)
    without = [o for o in family.operations if "ranks" not in {p.name for p in family.parameters_for(o)}]
    assert sorted(without) == list(OPERATIONS)


@pytest.mark.parametrize(("operation", "name"), CASES)
def test_a_technique_conforms(operation: str, name: str, results: Results) -> None:
    found = [r for r in results(operation) if r.technique == name]
    assert found, "no point is for it"
    assert [r.status for r in found] == ["ok"] * len(found), [r.reason for r in found]
    assert not [r.problem for r in found if r.problem]
