"""Every training technique proves what it says of itself at one, two and four ranks; none brings a test of its own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import seeds
from once import once

from paceline.base.families.family import load_family
from paceline.families.training.api.sizes import SIZES, VOCABULARY
from paceline.families.training.core.proofs.oracle import LEAST_FALL
from paceline.families.training.ops.data_parallel.gradient_probe import APART
from paceline.spec import content
from paceline.workflows.conformance import ConformanceResult, conformance, points_of

FAMILY = "training"
RANKS = (1, 2, 4)
LIMITS = re.compile(r"it shares \S+ attention, not \S+|\d+ heads( of keys)? cannot be dealt out evenly")
"""Why a technique may leave out some of the points at which ranks share sequences."""
WITH_RANKS = {
    operation
    for operation in load_family(FAMILY).operations
    if "ranks" in {p.name for p in load_family(FAMILY).parameters_for(operation)}
}
POINTS = sorted(
    (operation, ranks, technique)
    for technique, source in content.techniques(FAMILY).items()
    for operation in source.info.implements
    if points_of("training", operation) and operation in WITH_RANKS
    for ranks in RANKS
)
"""Runs that lose peers (churn), and operations without ranks, have tests of their own."""


HELD = {"zero-1": (4, 12), "zero-2": (2, 14), "zero-3": (0, 16)}
"""The paper's bytes of a parameter that every rank holds, and that ranks share."""
VARIANTS = (
    {"technique": "zero-3", "as": "zero-3-kept", "options": {"reshard": False}},
    *({"technique": name, "as": f"{name}-mixed", "options": {"state": "mixed"}} for name in HELD),
)
"""What shares state, beside itself with other options."""
SHARING_RANKS = (2, 4)
PAPERS = 0.05
LIKE = 0.01

pytestmark = pytest.mark.timeout(1500)
"""The first test of a number of ranks waits for all its techniques."""

Launch = Callable[[int], list[ConformanceResult]]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Return what gives the results of all techniques at a number of ranks, measured together once."""

    @once
    def run(ranks: int) -> list[ConformanceResult]:
        return conformance(
            sorted({technique for _, _, technique in POINTS}),
            family=FAMILY,
            operations=tuple(sorted({operation for operation, _, _ in POINTS})),
            ranks=(ranks,),
            variants=VARIANTS if ranks in SHARING_RANKS else (),
            folder=tmp_path_factory.mktemp(f"ranks-{ranks}"),
            seed=seeds.current(),
        )

    return run


@pytest.mark.parametrize(("operation", "ranks", "technique"), POINTS)
def test_a_technique_conforms(operation: str, ranks: int, technique: str, launch: Launch) -> None:
    found = [r for r in launch(ranks) if (r.operation, r.technique) == (operation, technique)]
    refusals = [r.reason or "" for r in found if r.status == "unsupported"]
    assert [r.status for r in found].count("ok") == len(found) - len(refusals) > 0, [r.reason for r in found]
    assert not [reason for reason in refusals if not LIMITS.search(reason)]
    assert not [r.problem for r in found if r.problem]


def test_of_every_technique_of_data_parallelism_but_one_own_gradients_are_seen(launch: Launch) -> None:
    found = {r.technique: set(r.measured) for r in launch(2) if r.operation == "data_parallel"}
    unseen = {name for name, metrics in found.items() if not set(APART) <= metrics}
    assert unseen == {"fsdp"}, "a library's own tensors are in the place of its parameters"
    assert found["fsdp"], "it has other figures"


@pytest.mark.parametrize("ranks", RANKS)
def test_no_seed_decides_whether_a_technique_has_learnt(ranks: int, launch: Launch) -> None:
    untrained = math.log(VOCABULARY)
    falls = {
        name: 1 - r.measured["eval_loss"] / untrained
        for name, r in of_data_parallelism(launch(ranks)).items()
        if "eval_loss" in r.measured
    }
    assert {name: fall for name, fall in falls.items() if fall < 2 * LEAST_FALL} == {}
    assert len(falls) > 30


def of_data_parallelism(results: list[ConformanceResult]) -> dict[str, ConformanceResult]:
    return {r.technique: r for r in results if r.operation == "data_parallel"}


@pytest.mark.parametrize("ranks", SHARING_RANKS)
@pytest.mark.parametrize("technique", sorted(HELD))
def test_mixed_state_is_the_papers_and_halves_what_is_sent(
    technique: str, ranks: int, launch: Launch
) -> None:
    found = of_data_parallelism(launch(ranks))
    mixed, single = found[f"{technique}-mixed"], found[technique]
    assert mixed.status == single.status == "ok", mixed.reason
    assert mixed.problem is None
    whole, shared = HELD[technique]
    count = SIZES["nano"].parameters(VOCABULARY)
    assert mixed.measured["state_bytes"] == pytest.approx(whole * count + shared * count / ranks, rel=PAPERS)
    assert mixed.measured["wire_bytes"] == pytest.approx(single.measured["wire_bytes"] / 2, rel=0.001)
    assert mixed.measured["messages"] == single.measured["messages"]
    assert mixed.measured["eval_loss"] != single.measured["eval_loss"]
    assert mixed.measured["eval_loss"] == pytest.approx(single.measured["eval_loss"], rel=LIKE)


@pytest.mark.parametrize("ranks", SHARING_RANKS)
def test_layers_that_stay_after_forward_are_gathered_once(ranks: int, launch: Launch) -> None:
    found = of_data_parallelism(launch(ranks))
    kept, freed = found["zero-3-kept"], found["zero-3"]
    assert kept.problem is None
    assert kept.measured["wire_bytes"] == pytest.approx(found["zero-1"].measured["wire_bytes"], rel=0.001)
    assert kept.measured["state_bytes"] == freed.measured["state_bytes"]
    assert kept.measured["transient_bytes"] > freed.measured["transient_bytes"]
