"""Gives every rank the rotary positions of the first."""

from __future__ import annotations

from paceline.baselines.training import ring_attention
from paceline.baselines.training.ring_attention import RingAttention
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="counts-from-zero",
    family="training",
    implements=("sequence_parallel",),
    summary="every rank counts positions from zero",
    properties={"exact": True, "replicas": "identical"},
)
class CountsFromZero(RingAttention):
    """Rotates by places in the share, not in the sequence."""

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Turn the rotations of the model to those of the first positions."""
        model, own = self.task.model, self.places[self.comm.rank]
        for name in ("cos_TK", "sin_TK"):
            table = model.get_buffer(name)
            table[own] = table[: len(own)].clone()
        return super().forward_backward(sequences_BS)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return ring_attention.cost(task)
