"""Every training technique proves what it says of itself at one, two and four ranks; none brings a test of its own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import parts
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

PARTS = parts.parts_of(technique for _, _, technique in POINTS)

pytestmark = pytest.mark.timeout(180)
"""The first test of a part, and of a number of ranks, waits for all its techniques."""

Launch = Callable[[int, str], list[ConformanceResult]]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """Return what gives the results of a technique's part at a number of ranks, measured together once."""

    @once
    def run(asked: tuple[int, tuple[str, ...]]) -> list[ConformanceResult]:
        ranks, part = asked
        return conformance(
            part,
            family=FAMILY,
            operations=tuple(sorted({operation for operation, _, name in POINTS if name in part})),
            ranks=(ranks,),
            variants=[v for v in VARIANTS if v["technique"] in part] if ranks in SHARING_RANKS else (),
            folder=tmp_path_factory.mktemp(f"ranks-{ranks}"),
            seed=seeds.current(),
        )

    return lambda ranks, technique: run((ranks, parts.part_with(technique, PARTS)))


@pytest.mark.parametrize(("operation", "ranks", "technique"), POINTS)
def test_a_technique_conforms(operation: str, ranks: int, technique: str, launch: Launch) -> None:
    found = [r for r in launch(ranks, technique) if (r.operation, r.technique) == (operation, technique)]
    refusals = [r.reason or "" for r in found if r.status == "unsupported"]
    assert [r.status for r in found].count("ok") == len(found) - len(refusals) > 0, [r.reason for r in found]
    assert not [reason for reason in refusals if not LIMITS.search(reason)]
    assert not [r.problem for r in found if r.problem]


OF_DATA_PARALLELISM = sorted({name for operation, _, name in POINTS if operation == "data_parallel"})


@pytest.mark.parametrize("technique", OF_DATA_PARALLELISM)
def test_of_every_technique_of_data_parallelism_but_one_own_gradients_are_seen(
    technique: str, launch: Launch
) -> None:
    measured = set(of_data_parallelism(launch(2, technique))[technique].measured)
    assert measured, "it has no figures"
    assert (set(APART) <= measured) == (technique != "fsdp"), (
        "a library's own tensors stand for its parameters"
    )


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("technique", OF_DATA_PARALLELISM)
def test_no_seed_decides_whether_a_technique_has_learnt(technique: str, ranks: int, launch: Launch) -> None:
    found = of_data_parallelism(launch(ranks, technique))[technique]
    fall = 1 - found.measured["eval_loss"] / math.log(VOCABULARY)
    assert fall >= 2 * LEAST_FALL


def of_data_parallelism(results: list[ConformanceResult]) -> dict[str, ConformanceResult]:
    return {r.technique: r for r in results if r.operation == "data_parallel"}


@pytest.mark.parametrize("ranks", SHARING_RANKS)
@pytest.mark.parametrize("technique", sorted(HELD))
def test_mixed_state_is_the_papers_and_halves_what_is_sent(
    technique: str, ranks: int, launch: Launch
) -> None:
    found = of_data_parallelism(launch(ranks, technique))
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
    found = of_data_parallelism(launch(ranks, "zero-3"))
    kept, freed = found["zero-3-kept"], found["zero-3"]
    single = of_data_parallelism(launch(ranks, "zero-1"))["zero-1"]
    assert kept.problem is None
    assert kept.measured["wire_bytes"] == pytest.approx(single.measured["wire_bytes"], rel=0.001)
    assert kept.measured["state_bytes"] == freed.measured["state_bytes"]
    assert kept.measured["transient_bytes"] > freed.measured["transient_bytes"]
