"""Says that it equals synchronous training one step late, and averages nothing."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="equals-late-in-name",
    family="training",
    implements=("data_parallel",),
    summary="says that it equals synchronous training one step late, and averages nothing",
    properties={
        "exact": False,
        "replicas": "apart",
        "equals_ddp": {"optimizer": "sgd", "arguments": {}, "late": True},
    },
)
class EqualsLateInName(FlatReplica):
    """Ships the weights at which it took its last gradients."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.before = self.register_state("before", self.flat.values.clone())

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Keep the weights at which a step begins."""
        self.before.copy_(self.flat.values)
        return super().forward_backward(sequences_BS)

    def finish(self) -> None:
        """Ship what the last step gave."""
        self.before.copy_(self.flat.values)

    def weights(self) -> list[Tensor]:
        """Return weights that are a step old."""
        return self.flat.pieces(self.before)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
