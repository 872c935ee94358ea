"""Every technique of training's operations without ranks passes its gate at odd sizes, at each point that it is for."""

from __future__ import annotations

from collections.abc import Callable

import parts
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

PARTS = {o: parts.parts_of(name for other, name in CASES if other == o) for o in {o for o, _ in CASES}}

pytestmark = pytest.mark.timeout(180)
"""The first test of a part of an operation's techniques waits for all of them."""

Results = Callable[[str, str], list[ConformanceResult]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    @once
    def of(asked: tuple[str, tuple[str, ...]]) -> list[ConformanceResult]:
        operation, part = asked
        folder = tmp_path_factory.mktemp(operation)
        operations = (operation,)
        return conformance(
            part, family=FAMILY, operations=operations, ranks=(1,), folder=folder, seed=seeds.current()
        )

    return lambda operation, name: of((operation, parts.part_with(name, PARTS[operation])))


def test_these_are_the_operations_without_ranks() -> None:
    family = load_family(FAMILY)
    without = [o for o in family.operations if "ranks" not in {p.name for p in family.parameters_for(o)}]
    assert sorted(without) == list(OPERATIONS)


@pytest.mark.parametrize(("operation", "name"), CASES)
def test_a_technique_conforms(operation: str, name: str, results: Results) -> None:
    found = [r for r in results(operation, name) if r.technique == name]
    assert found, "no point is for it"
    assert [r.status for r in found] == ["ok"] * len(found), [r.reason for r in found]
    assert not [r.problem for r in found if r.problem]
