"""Returns no loss on any rank."""

from __future__ import annotations

from paceline.baselines.training import one_f_one_b
from paceline.baselines.training.one_f_one_b import OneFOneB
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="sees-no-loss",
    family="training",
    implements=("pipeline_parallel",),
    summary="keeps its loss to itself",
    properties={"exact": True, "replicas": "identical"},
)
class SeesNoLoss(OneFOneB):
    """Trains well and says nothing."""

    def forward_backward(self, sequences_BS: Tensor) -> None:
        """Train, and forget the loss."""
        super().forward_backward(sequences_BS)


def cost(task: Task) -> Cost:
    """Return what the honest schedule sends."""
    return one_f_one_b.cost(task)
