"""Every training technique proves what it says of itself at one, two and four ranks; none brings a test of its own."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from paceline import content
from paceline.testing import ConformanceResult, conformance

FAMILY = "training"
RANKS = (1, 2, 4)
LIMITS = re.compile(r"it shares \S+ attention, not \S+|\d+ heads( of keys)? cannot be dealt out evenly")
"""Why a technique may leave out some of the points at which ranks share sequences."""
TECHNIQUES = sorted(content.techniques(FAMILY))


@pytest.fixture(scope="module")
def results_at(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Return a function that gives the results at a number of ranks, measured once."""

    @cache
    def run(ranks: int) -> list[ConformanceResult]:
        folder: Path = tmp_path_factory.mktemp(f"ranks-{ranks}")
        return conformance(TECHNIQUES, family=FAMILY, ranks=(ranks,), folder=folder)

    return run


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("technique", TECHNIQUES)
def test_a_technique_conforms(technique: str, ranks: int, results_at: object) -> None:
    assert callable(results_at)
    found = [r for r in results_at(ranks) if r.technique == technique]
    refusals = [r.reason or "" for r in found if r.status == "unsupported"]
    assert [r.status for r in found].count("ok") == len(found) - len(refusals) > 0, [r.reason for r in found]
    assert not [reason for reason in refusals if not LIMITS.search(reason)]
    assert not [r.problem for r in found if r.problem]
