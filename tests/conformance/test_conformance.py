"""Every shipped collectives technique conforms at one to four ranks; no technique brings a test of its own.

One job of real process groups serves all techniques of a number of ranks. At two and four ranks they are held to NCCL's
rules besides: what would hang there is refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import seeds
from once import once

from paceline.base.errors import UserError
from paceline.spec import content
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import ConformanceResult, conformance, points_of

FAMILY = "collectives"
RANKS = (1, 2, 3, 4)
FULL_RANKS = (3,)
"""Where every size, dtype and payload is measured: with three ranks nothing divides evenly."""
RUNNERS = {1: "local-cpu", 2: "local-nccl-rules", 3: "local-cpu", 4: "local-nccl-rules"}
TECHNIQUES = sorted(
    name
    for name, source in content.techniques(FAMILY).items()
    if any(points_of(FAMILY, operation) for operation in source.info.implements)
)
"""Those with timed operations; scenarios (churn, localisation) have tests of their own."""
VARIANTS = {
    entry["as"]: entry
    for suite in (
        load_suite(path) for name, path in content.suite_files().items() if name.startswith(f"{FAMILY}/")
    )
    for entry in (
        e.model_dump(by_alias=True)
        for given in (suite.model.techniques, *(t.techniques or [] for t in suite.model.tiers.values()))
        for e in given
        if not isinstance(e, str) and e.label
    )
    if entry["technique"] in TECHNIQUES
}
"""Techniques with options, from all shipped suites."""
MIN_HONEST_CASES = 15
"""Operations × points × techniques that pass at each number of ranks."""


@pytest.fixture(scope="module")
def results_at(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Return a function that gives the results at a number of ranks, measured once."""

    @once
    def run(ranks: int) -> list[ConformanceResult]:
        folder: Path = tmp_path_factory.mktemp(f"ranks-{ranks}")
        brief = ranks not in FULL_RANKS
        return conformance(
            TECHNIQUES,
            seed=seeds.current(),
            family=FAMILY,
            ranks=(ranks,),
            brief=brief,
            variants=list(VARIANTS.values()),
            runner=RUNNERS[ranks],
            folder=folder,
        )

    return run


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("technique", [*TECHNIQUES, *VARIANTS])
def test_a_technique_conforms(technique: str, ranks: int, results_at: object) -> None:
    assert callable(results_at)
    found = [r for r in results_at(ranks) if r.technique == technique]
    assert not [r.problem for r in found if r.problem]
    if ranks == 4:  # every technique supports four ranks; a square grid, say, no two
        assert any(r.status == "ok" for r in found), "it ran nowhere"


@pytest.mark.parametrize("ranks", RANKS)
def test_many_honest_cases_pass_the_gate(ranks: int, results_at: object) -> None:
    assert callable(results_at)
    passed = [r for r in results_at(ranks) if r.status == "ok"]
    assert len(passed) >= MIN_HONEST_CASES
    assert all(r.measured for r in passed)


EIGHT_RANKS = """
runner: eight-ranks
description: More ranks than cores, for what has three levels.
driver: local
device: cpu
backend: gloo
max_ranks: 8
default_link: loopback
env: {OMP_NUM_THREADS: "1"}
limits: {launch_seconds: 120s}
"""


def test_levels_conform_on_eight_ranks(tmp_path: Path) -> None:
    """Below eight ranks a third level has one rank."""
    runner = tmp_path / "eight-ranks.yaml"
    runner.write_text(EIGHT_RANKS)
    levels = {"technique": "hierarchical", "as": "three-levels", "options": {"inner": 2, "middle": 2}}
    results = conformance(
        ["hierarchical"],
        ranks=(8,),
        brief=True,
        variants=[levels],
        runner=str(runner),
        folder=tmp_path,
        seed=seeds.current(),
    )
    assert not [r.problem for r in results if r.problem]
    passed = {(r.technique, r.operation) for r in results if r.status == "ok"}
    assert {("hierarchical", o) for o in ("all_reduce", "all_gather", "reduce_scatter")} <= passed
    assert ("three-levels", "all_reduce") in passed


def test_points_that_a_runner_has_no_ranks_for_are_no_success(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no point of hierarchical .* ranks \[8\]"):
        conformance(["hierarchical"], ranks=(8,), brief=True, folder=tmp_path)
