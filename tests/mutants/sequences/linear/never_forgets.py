"""Runs the recurrence without its decays."""

from __future__ import annotations

from paceline.baselines.training import lasp
from paceline.baselines.training.lasp import LASP
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="never-forgets",
    family="training",
    implements=("sequence_parallel",),
    summary="decays are one",
    properties={"exact": True, "replicas": "identical"},
)
class NeverForgets(LASP):
    """What linear attention without gates would give."""

    def attend(
        self, q_BHtK: Tensor, k_BGtK: Tensor, v_BGtK: Tensor, log_decay_BGtK: Tensor | None = None
    ) -> Tensor:
        """Decay nothing."""
        assert log_decay_BGtK is not None
        return super().attend(q_BHtK, k_BGtK, v_BGtK, 0 * log_decay_BGtK)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return lasp.cost(task)
