"""Averages gradients as it should, and returns no loss on the last rank."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, FlatReplica, Task


@technique(
    name="hides-a-loss",
    family="training",
    implements=("data_parallel",),
    summary="the last rank has no loss",
    properties={"exact": True, "replicas": "identical"},
)
class HidesALoss(FlatReplica):
    """Honest but for one rank's loss."""

    def forward_backward(self, sequences_BS: Tensor) -> Tensor | None:
        """Forget the loss of the last rank."""
        loss = super().forward_backward(sequences_BS)
        return None if self.comm.rank == self.comm.world_size - 1 else loss

    def exchange_gradients(self, step: int) -> None:
        """Average."""
        self.comm.backend.all_reduce(self.flat.gradients)
        self.flat.gradients.div_(self.comm.world_size)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
