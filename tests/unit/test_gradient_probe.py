"""What rides along tells gradients that agree from those that do not, whatever the technique does with them after."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from paceline.baselines.training.zero_2 import Zero2
from paceline.baselines.training.zero_3 import Zero3
from torch import Tensor
from training_task import make_comm, make_task, on_ranks

from paceline.families.training.api.replica import Replica
from paceline.families.training.ops.data_parallel.gradient_probe import (
    APART,
    MOST_ELEMENTS,
    WIDTH,
    GradientProbe,
    apart,
    distance,
)

SHAPES = ((300, 40), (7,), (64, 64))
TOLERANCE = 4 / math.sqrt(WIDTH)
"""Four standard errors of a sketched cosine."""


def gradients(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def found(*ranks: list[list[Tensor] | None]) -> tuple[dict[str, Any], dict[str, str]]:
    """Let each rank note its gradients of some steps, and bring the notes together."""
    probes = []
    for steps in ranks:
        gradient_probe = GradientProbe(gradients(0), seed=11)
        for step in steps:
            gradient_probe.note(step)
        probes.append(gradient_probe)
    session: Any = SimpleNamespace(
        control=SimpleNamespace(gather=lambda rows: [gradient_probe.notes for gradient_probe in probes])
    )
    absent: dict[str, str] = {}
    return apart(session, probes[0], absent), absent


def test_cosines_and_dispersions_are_those_of_the_gradients() -> None:
    one, other = gradients(1), gradients(2)
    mixed = [0.6 * a + 0.8 * b for a, b in zip(one, other, strict=True)]
    flat = [torch.cat([g.reshape(-1) for g in grads]).double() for grads in (one, mixed)]
    true = float(torch.dot(*flat) / (flat[0].norm() * flat[1].norm()))
    metrics, absent = found([one], [mixed])
    assert metrics["gradient_cosine_similarity"]["samples"][0] == pytest.approx(true, abs=TOLERANCE)
    norms = [float(f.norm()) for f in flat]
    spread = abs(norms[0] - norms[1]) / sum(norms)
    assert metrics["gradient_norm_cv"]["samples"][0] == pytest.approx(spread, rel=1e-4)
    assert not absent


def test_equal_opposed_and_unrelated_gradients_are_told_apart() -> None:
    same, negative = gradients(1), [-g for g in gradients(1)]
    longer = [3 * g for g in same]
    metrics, _ = found([same, same, same], [longer, negative, gradients(2)])
    equal, opposed, unrelated = metrics["gradient_cosine_similarity"]["samples"]
    assert equal == pytest.approx(1.0, abs=1e-6)
    assert opposed == pytest.approx(-1.0, abs=1e-6)
    assert abs(unrelated) < TOLERANCE
    assert metrics["gradient_norm_cv"]["samples"] == pytest.approx([0.5, 0.0, spread_of(same)], abs=1e-2)


def spread_of(same: list[Tensor]) -> float:
    norms = [math.sqrt(sum(float(g.square().sum()) for g in grads)) for grads in (same, gradients(2))]
    return abs(norms[0] - norms[1]) / sum(norms)


def test_a_rank_that_was_away_is_left_out_and_steps_of_one_rank_are_none() -> None:
    same = gradients(1)
    metrics, _ = found([same, same], [same, None], [None, None])
    assert len(metrics["gradient_cosine_similarity"]["samples"]) == 1
    nothing, absent = found([same], [None])
    assert nothing == {} and set(absent) == set(APART)


def test_of_a_large_model_some_elements_are_sketched_and_all_count_for_norms() -> None:
    large = [torch.ones(3 * MOST_ELEMENTS // 2)]
    gradient_probe = GradientProbe(large, seed=1)
    gradient_probe.note(large)
    assert gradient_probe.stride == 2
    assert gradient_probe.notes[0][0] == pytest.approx(math.sqrt(3 * MOST_ELEMENTS // 2))
    assert math.sqrt(sum(v * v for v in gradient_probe.notes[0][1:])) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("kind", [Zero2, Zero3])
def test_gradients_that_backward_exchanges_are_caught_before(kind: type[Replica]) -> None:
    """What a rank notes is what one process notes that trains on the rank's rows; averages are something else."""
    sequences_RBS = torch.randint(64, (2, 4, 17), generator=torch.Generator().manual_seed(5))

    def noted(replica: Replica) -> list[float]:
        gradient_probe = GradientProbe(
            list(replica.model.parameters()), seed=11, caught=list(replica.model.parameters())
        )
        gradient_probe.listen()
        replica.forward_backward(sequences_RBS[replica.comm.rank])
        assert gradient_probe.note(None) > 0
        replica.forward_backward(sequences_RBS[replica.comm.rank])
        gradient_probe.note(None)
        assert math.isnan(gradient_probe.notes[1][0]), (
            "it listens when it is told to, and no longer than for one step"
        )
        return gradient_probe.notes[0]

    seen = [notes for _, notes in on_ranks(kind, 2, noted)]
    for rank in range(2):
        alone = Replica(make_task(), make_comm())
        alone.forward_backward(sequences_RBS[rank])
        parameters = list(alone.model.parameters())
        own = GradientProbe(parameters, seed=11)
        own.note([p.grad for p in parameters if p.grad is not None])
        assert distance(seen[rank], own.notes[0]) < 1e-6
        assert distance(seen[1 - rank], own.notes[0]) > 0.1


def test_a_note_that_is_none_is_far_from_every_other() -> None:
    assert distance([math.nan, 0.0], [1.0, 1.0]) == math.inf
    assert distance([1.1, 1.0, 0.0], [1.0, 1.0, 0.0]) == pytest.approx(0.1)
    assert distance([1.0, 1.0, 0.0], [1.0, 0.0, 1.0]) == pytest.approx(math.sqrt(2))
