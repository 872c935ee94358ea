"""Leaves out the gradients of the first stage's weights of one microbatch."""

from __future__ import annotations

from paceline.baselines.training import zb_h1
from paceline.baselines.training.zb_h1 import ZbH1
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="forgets-weights",
    family="training",
    implements=("pipeline_parallel",),
    summary="leaves out weights of one microbatch",
    properties={"exact": True, "replicas": "identical"},
)
class ForgetsWeights(ZbH1):
    """Drops what the last W of a rank would add."""

    def forward_backward(self, sequences_BS: Tensor) -> Tensor | None:
        """Follow the table without its last action."""
        self.row = list(self.row)[:-1]
        loss = super().forward_backward(sequences_BS)
        self._weights_later.clear()
        self.row = self.table[self.task.rank]
        return loss


def cost(task: Task) -> Cost:
    """Return what the honest schedule sends."""
    return zb_h1.cost(task)
