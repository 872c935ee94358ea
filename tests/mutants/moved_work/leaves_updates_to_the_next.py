"""Applies each step's gradients when the next step begins, and the last ones when training has ended."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Replica, Task


@technique(
    name="leaves-updates-to-the-next",
    family="training",
    implements=("data_parallel",),
    summary="applies each step's gradients when the next step begins",
    properties={"exact": True, "replicas": "identical"},
)
class LeavesUpdatesToTheNext(Replica):
    """Ends with the right weights, and has them in no step."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.left: int | None = None

    def forward_backward(self, sequences_BS: Tensor) -> Tensor | None:
        """Catch up first."""
        self.finish()
        return super().forward_backward(sequences_BS)

    def update(self, step: int) -> None:
        """Leave it."""
        self.left = step

    def finish(self) -> None:
        """Average and apply what was left."""
        if self.left is None:
            return
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            self.comm.backend.all_reduce(parameter.grad)
            parameter.grad.div_(self.comm.world_size)
        super().update(self.left)
        self.left = None


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
