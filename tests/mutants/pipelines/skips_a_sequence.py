"""Leaves the last sequence of every step out."""

from __future__ import annotations

from paceline.baselines.training import one_f_one_b
from paceline.baselines.training.one_f_one_b import OneFOneB
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="skips-a-sequence",
    family="training",
    implements=("pipeline_parallel",),
    summary="leaves a sequence out",
    properties={"exact": True, "replicas": "identical"},
)
class SkipsASequence(OneFOneB):
    """Works through all sequences but one."""

    def forward_backward(self, sequences_BS: Tensor) -> Tensor | None:
        """Train on the last sequence but one twice instead of on the last."""
        sequences_BS = sequences_BS.clone()
        sequences_BS[-1] = sequences_BS[-2]
        return super().forward_backward(sequences_BS)


def cost(task: Task) -> Cost:
    """Return what the honest schedule sends."""
    return one_f_one_b.cost(task)
