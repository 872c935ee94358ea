"""Rounds gradients to the nearest of three values, and says that this has no bias."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="rounds-ternary",
    family="training",
    implements=("data_parallel",),
    summary="rounds gradients to the nearest of three values, and says that this has no bias",
    properties={"exact": False, "replicas": "identical", "unbiased_with": {}},
)
class RoundsTernary(FlatReplica):
    """Draws nothing."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def exchange_gradients(self, step: int) -> None:
        """Average −s, 0 and s."""
        gradients = self.flat.gradients
        scale = gradients.abs().max().clamp(min=1e-30)
        gradients.div_(scale).round_().mul_(scale)
        self.comm.backend.all_reduce(gradients)
        gradients.div_(self.comm.world_size)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
