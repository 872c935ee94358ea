"""Every training technique proves what it says of itself at one, two and four ranks; none brings a test of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline import content
from paceline.families.training.conformance import points
from paceline.families.training.rider import APART
from paceline.testing import ConformanceResult, conformance

FAMILY = "training"
RANKS = (1, 2, 4)
LIMITS = re.compile(r"it shares \S+ attention, not \S+|\d+ heads( of keys)? cannot be dealt out evenly")
"""Why a technique may leave out some of the points at which ranks share sequences."""
POINTS = sorted(
    (operation, ranks, technique)
    for technique, source in content.techniques(FAMILY).items()
    for operation in source.info.implements
    if points(operation)
    for ranks in RANKS
)
"""Runs that lose peers (churn) have tests of their own."""


Launch = Callable[[str, int], list[ConformanceResult]]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Return what gives the results of all techniques of an operation at a number of ranks, measured together once.

    A launch that has failed, or outlasted a test, is not repeated for every technique.
    """
    done: dict[tuple[str, int], list[ConformanceResult] | None] = {}

    def run(operation: str, ranks: int) -> list[ConformanceResult]:
        if (operation, ranks) not in done:
            done[operation, ranks] = None
            able = sorted({technique for o, _, technique in POINTS if o == operation})
            folder: Path = tmp_path_factory.mktemp(f"{operation}-{ranks}")
            done[operation, ranks] = conformance(
                able, family=FAMILY, operations=(operation,), ranks=(ranks,), folder=folder
            )
        found = done[operation, ranks]
        assert found is not None, "its launch failed: see the first of these tests"
        return found

    return run


@pytest.mark.parametrize(("operation", "ranks", "technique"), POINTS)
def test_a_technique_conforms(operation: str, ranks: int, technique: str, launch: Launch) -> None:
    found = [r for r in launch(operation, ranks) if r.technique == technique]
    refusals = [r.reason or "" for r in found if r.status == "unsupported"]
    assert [r.status for r in found].count("ok") == len(found) - len(refusals) > 0, [r.reason for r in found]
    assert not [reason for reason in refusals if not LIMITS.search(reason)]
    assert not [r.problem for r in found if r.problem]


def test_of_every_technique_of_data_parallelism_but_one_own_gradients_are_seen(launch: Launch) -> None:
    found = {r.technique: set(r.measured) for r in launch("data_parallel", 2)}
    unseen = {name for name, metrics in found.items() if not set(APART) <= metrics}
    assert unseen == {"fsdp"}, "a library's own tensors are in the place of its parameters"
    assert found["fsdp"], "it has other figures"
