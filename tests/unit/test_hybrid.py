"""Ranks of a mesh share matrices, layers and sequences, each with the right others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from paceline.baselines.training.megatron_3d import Megatron3d
from training_task import make_comm, make_model, make_task, on_ranks

from paceline.families.training.api.hybrid.matrices import cuts
from paceline.families.training.api.hybrid.mesh import Mesh
from paceline.families.training.api.hybrid.replica import HybridReplica
from paceline.families.training.api.model import Layer, loss_and_gradients
from paceline.families.training.api.replica import Comm, Replica, Task, UnsupportedError
from paceline.families.training.api.sizes import SIZES

TOLERANCE = 1e-6
"""Norm of the difference over that of the tensor's gradient; 5·10⁻⁷ was seen, in float32 on both sides."""


def meshes(ranks: int, tensor: int, pipeline: int) -> list[Mesh]:
    return [Mesh.of(rank, ranks, tensor=tensor, pipeline=pipeline) for rank in range(ranks)]


@pytest.mark.parametrize(
    ("ranks", "tensor", "pipeline"), [(8, 2, 2), (1, 2, 2), (6, 2, 4), (12, 3, 2), (8, 4, 1)]
)
def test_every_rank_stands_at_a_place_of_its_own_and_lines_hold_it(
    ranks: int, tensor: int, pipeline: int
) -> None:
    found = meshes(ranks, tensor, pipeline)
    assert len({(m.tensor_place, m.data_place, m.pipeline_place) for m in found}) == ranks
    for m in found:
        for line, place in (
            (m.tensor_ranks, m.tensor_place),
            (m.data_ranks, m.data_place),
            (m.pipeline_ranks, m.pipeline_place),
        ):
            assert line[place] == m.rank
            assert all(0 <= rank < ranks for rank in line)
        assert len(m.tensor_ranks) * len(m.data_ranks) * len(m.pipeline_ranks) == ranks


def test_two_by_two_by_two_has_matrices_beside_each_other_and_stages_far_apart() -> None:
    mesh = meshes(8, 2, 2)[5]
    assert [list(line) for line in (mesh.tensor_ranks, mesh.data_ranks, mesh.pipeline_ranks)] == [
        [4, 5],
        [5, 7],
        [1, 5],
    ]


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize(("ranks", "tensor", "pipeline"), [(2, 2, 1), (4, 2, 2), (4, 2, 1), (8, 2, 2)])
def test_a_mesh_finds_the_gradients_of_one_process(
    ranks: int, tensor: int, pipeline: int, kv_heads: int
) -> None:
    size = replace(SIZES["nano"], kv_heads=kv_heads)
    sequences = torch.randint(64, (8, 14), generator=torch.Generator().manual_seed(2))
    alone = make_model(size)
    loss = loss_and_gradients(alone, sequences)

    def make(task: Task, comm: Comm) -> Replica:
        model = make_model(size)
        return Megatron3d(replace(task, model=model), comm, tensor=tensor, pipeline=pipeline)

    def step(replica: Replica) -> float | None:
        assert isinstance(replica, HybridReplica)
        found = replica.forward_backward(sequences)
        replica.exchange_gradients(0)
        for parameter in replica.own.values():  # what shares() then says are gradients
            assert parameter.grad is not None
            parameter.data = parameter.grad
        return None if found is None else float(found)

    found = on_ranks(make, ranks, step, size=size, context=13, batch=8, microbatches=2)
    expected = [p.grad for p in alone.parameters()]
    seen = [torch.zeros(p.numel(), dtype=torch.int) for p in alone.parameters()]
    for replica, _ in found:
        for number, start, values in replica.shares():
            whole = expected[number]
            assert whole is not None
            wanted = whole.reshape(-1)[start : start + values.numel()]
            assert (values - wanted).norm() <= TOLERANCE * whole.norm()
            seen[number][start : start + values.numel()] += 1
    assert all(bool((count >= 1).all()) for count in seen)
    losses = [loss for _, loss in found if loss is not None]
    assert sum(losses) / len(losses) == pytest.approx(float(loss), rel=1e-6)


@pytest.mark.parametrize(
    ("kv_heads", "ranks", "what"),
    [
        (4, 3, "4 heads cannot be dealt out evenly to 3"),
        (1, 2, "1 heads of keys cannot be dealt out evenly to 2"),
    ],
)
def test_heads_that_do_not_divide_are_unsupported(kv_heads: int, ranks: int, what: str) -> None:
    layer = Layer(replace(SIZES["nano"], kv_heads=kv_heads))
    with pytest.raises(UnsupportedError, match=what):
        cuts(layer, ranks, 0)


def test_sequences_that_do_not_divide_are_unsupported() -> None:
    with pytest.raises(
        UnsupportedError, match=r"6 sequences cannot be dealt out evenly to 1 copy .* in 4 micro"
    ):
        Megatron3d(make_task(batch=6, microbatches=4), make_comm())
