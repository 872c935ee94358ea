"""Every shipped kernel is right at odd sizes, in every dtype and at every bit width that it supports."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest
import seeds
from kernel_operators import OPERATORS

from paceline.spec import content
from paceline.workflows.conformance import ConformanceResult, conformance

FAMILY = "kernels"
TECHNIQUES = sorted(
    name
    for name, source in content.techniques(FAMILY).items()
    if source.info.properties.get("compiles") is not True
    and any(operation in OPERATORS for operation in source.info.implements)
)
"""Timed kernels. Those that compile take half a minute for each point; their suites gate them as well."""
MIN_HONEST_CASES = 40


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[ConformanceResult]:
    return conformance(
        TECHNIQUES, family=FAMILY, folder=tmp_path_factory.mktemp("kernels"), seed=seeds.current()
    )


def lacks(technique: str) -> bool:
    """Tell whether a kernel's card asks for a device or a package that is not here."""
    asked = content.techniques(FAMILY)[technique].info.requires
    packages = [re.split(r"[<>=~!]", text)[0] for text in asked.packages]
    return "cpu" not in (asked.devices or ("cpu",)) or any(find_spec(name) is None for name in packages)


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_a_kernel_conforms(technique: str, results: list[ConformanceResult]) -> None:
    found = [r for r in results if r.technique == technique]
    assert not [r.problem for r in found if r.problem]
    assert any(r.status == "ok" for r in found) != lacks(technique), [(r.status, r.reason) for r in found]


def test_every_operation_has_a_kernel_that_passed(results: list[ConformanceResult]) -> None:
    passed = [r for r in results if r.status == "ok"]
    assert {r.operation for r in passed} == set(OPERATORS)
    assert len(passed) >= MIN_HONEST_CASES
