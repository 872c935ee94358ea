"""DistZO2 on several ranks does what it does on one, and that is a step along the slope of all sequences."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from paceline.baselines.training import distzo2
from paceline.baselines.training.distzo2 import DistZo2, cost
from training_task import SMALL, make_comm, make_task, on_ranks

from paceline.base.techniques.technique import UnsupportedError
from paceline.families.training.api.fine_tuning.directions import direction
from paceline.families.training.api.model import next_symbol_loss

CONTEXT, ROWS, STEPS, RATE, EPSILON = 16, 8, 5, 0.05, 1e-2
FIELDS: dict[str, Any] = {
    "size": SMALL,
    "context": CONTEXT,
    "batch": ROWS,
    "steps": STEPS,
    "optimizer_name": "sgd",
    "epsilon": EPSILON,
}


def rows_of(step: int) -> torch.Tensor:
    return torch.randint(0, 64, (ROWS, CONTEXT + 1), generator=torch.Generator().manual_seed(step))


def trained(kind: Any, ranks: int) -> list[tuple[Any, torch.Tensor]]:
    """Return each rank's replica, and its weights after all steps; rank i reads rows i, i + n, …."""

    def run(replica: Any) -> torch.Tensor:
        replica.set_rate(RATE)
        for step in range(STEPS):
            replica.forward_backward(rows_of(step)[replica.comm.rank :: ranks])
            replica.exchange_gradients(step)
            replica.update(step)
        return replica.flat.values.clone()

    return on_ranks(kind, ranks, run, **FIELDS)


class OneSide(DistZo2):
    """Both partners look to the same side."""

    def loss_at(self, sequences_BS: torch.Tensor, distance: float, z_P: torch.Tensor) -> float:
        """Forget the sign."""
        return super().loss_at(sequences_BS, abs(distance), z_P)


class KeepsItsRows(DistZo2):
    """Partners measure on different sequences."""

    def gathered(self, sequences_BS: torch.Tensor) -> torch.Tensor:
        """Swap, and look away."""
        super().gathered(sequences_BS)
        return sequences_BS


def way(weights: torch.Tensor) -> float:
    """Return how far weights are from where one process ends, over how far that one went."""
    (_, alone), *_ = trained(DistZo2, 1)
    begun = torch.cat([p.detach().reshape(-1) for p in make_task(**FIELDS).model.parameters()])
    return float((weights - alone).norm() / (alone - begun).norm())


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_take_the_steps_of_one_process(ranks: int) -> None:
    found = trained(DistZo2, ranks)
    assert all(torch.equal(weights, found[0][1]) for _, weights in found)
    # Two ranks see the batch as one process does, bit for bit; four sum losses of two halves.
    assert way(found[0][1]) < (1e-9 if ranks == 2 else 2e-4)
    assert way(trained(OneSide, ranks)[0][1]) > 0.5
    assert way(trained(KeepsItsRows, ranks)[0][1]) > 0.05


def test_a_step_goes_along_the_slope_of_all_sequences() -> None:
    task = make_task(**{**FIELDS, "epsilon": 3e-4})
    replica = DistZo2(task, make_comm())
    replica.set_rate(RATE)
    begun = replica.flat.values.clone()
    z = direction(task.seed, 0, 0, 0, task.num_parameters)
    replica.forward_backward(rows_of(0))
    assert torch.equal(replica.flat.values, begun), "weights are put back"
    replica.update(0)
    moved = replica.flat.values.clone()
    with torch.no_grad():
        replica.flat.values.copy_(begun)
    loss = next_symbol_loss(replica.model, rows_of(0))
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(replica.model.parameters()))])
    slope = float(gradient @ z)
    assert float((begun - moved) @ z / (z @ z)) == pytest.approx(RATE * slope, rel=0.05)
    assert torch.allclose(begun - moved, float((begun - moved) @ z / (z @ z)) * z, atol=1e-6)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_cost_is_what_is_sent(ranks: int) -> None:
    sent = [sum(r.comm.counters.sent_bytes) for r, _ in trained(DistZo2, ranks)]
    messages = [sum(r.comm.counters.sent_messages) for r, _ in trained(DistZo2, ranks)]
    stated = cost(make_task(world_size=ranks, **FIELDS))
    assert {*sent} == {stated.sent_bytes} and {*messages} == {stated.messages}
    wide = make_task(world_size=ranks, **{**FIELDS, "size": "tiny"})
    assert cost(wide).sent_bytes == stated.sent_bytes, "nothing grows with the model"


def test_three_ranks_are_no_pairs() -> None:
    with pytest.raises(UnsupportedError, match="3 ranks are no pairs"):
        DistZo2(make_task(world_size=3, **FIELDS), make_comm())
    assert distzo2.LOSS_BYTES == 8
