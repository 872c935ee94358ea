"""Every reasoning technique passes the gate on the embedded reasoner, with many traces, one, and all alike."""

from __future__ import annotations

import pytest
import seeds

from paceline.spec import content
from paceline.workflows.conformance import ConformanceResult, conformance, points_of

FAMILY = "reasoning"
WHOLE = ("self-consistency", "best-of-n", "adaptive-consistency", "esc")
"""Techniques whose every vote is a whole trace."""
TECHNIQUES = sorted(content.techniques(FAMILY))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[ConformanceResult]:
    return conformance(
        TECHNIQUES, family=FAMILY, folder=tmp_path_factory.mktemp("reasoning"), seed=seeds.current()
    )


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_a_technique_conforms(technique: str, results: list[ConformanceResult]) -> None:
    found = [r for r in results if r.technique == technique]
    assert not [r.problem for r in found if r.problem]
    (operation,) = {str(r.params["op"]) for r in found}
    assert [r.status for r in found] == ["ok"] * len(points_of(FAMILY, operation))


def test_at_temperature_zero_all_traces_are_one(results: list[ConformanceResult]) -> None:
    cold = {r.technique: r.measured for r in results if r.params.get("temperature") == 0}
    assert {cold[name]["accuracy"] for name in WHOLE} == {cold["greedy"]["accuracy"]}
    assert cold["self-consistency"]["tokens"] == pytest.approx(4 * cold["greedy"]["tokens"])
