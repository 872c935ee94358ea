"""Every serving technique passes its gate at points that its blocks, steps and places do not divide."""

from __future__ import annotations

from collections.abc import Callable

import parts
import pytest
import seeds
from once import once

from paceline.spec import content
from paceline.workflows.conformance import ConformanceResult, conformance, points_of

FAMILY = "serving"
SOURCES = content.techniques(FAMILY)
CASES = sorted((o, name) for name, source in SOURCES.items() for o in source.info.implements)
PARTS = {o: parts.parts_of(name for other, name in CASES if other == o) for o in {o for o, _ in CASES}}

pytestmark = pytest.mark.timeout(180)
"""The first test of a part of an operation's techniques waits for all of them."""

Launch = Callable[[str, str], list[ConformanceResult]]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Return what gives the results of a part of an operation's techniques, measured together once."""

    @once
    def run(asked: tuple[str, tuple[str, ...]]) -> list[ConformanceResult]:
        operation, part = asked
        folder = tmp_path_factory.mktemp(operation)
        return conformance(part, family=FAMILY, operations=(operation,), folder=folder, seed=seeds.current())

    return lambda operation, technique: run((operation, parts.part_with(technique, PARTS[operation])))


@pytest.mark.parametrize(("operation", "technique"), CASES)
def test_a_technique_conforms(operation: str, technique: str, launch: Launch) -> None:
    found = [r for r in launch(operation, technique) if r.technique == technique]
    # a technique that splits a model between ranks may leave out the points of one
    alone = [r for r in found if r.status == "unsupported" and r.params.get("ranks") == 1]
    assert len(found) >= len(points_of(FAMILY, operation))
    assert [r.status for r in found].count("ok") == len(found) - len(alone) > 0, [r.reason for r in found]
    assert not [r.problem for r in found if r.problem]
