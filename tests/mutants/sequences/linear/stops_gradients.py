"""Passes states on, and takes no gradients of them from later ranks."""

from __future__ import annotations

from paceline.baselines.training import lasp
from paceline.baselines.training.lasp import LASP
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="stops-gradients",
    family="training",
    implements=("sequence_parallel",),
    summary="gradients of states end at the rank",
    properties={"exact": True, "replicas": "identical"},
)
class StopsGradients(LASP):
    """Its forward is right."""

    def scan(self, own_NKK: Tensor, decay_NK: Tensor, *, before: int | None, after: int | None) -> Tensor:
        """Take what comes from later ranks for nothing."""
        found_NKK = super().scan(own_NKK, decay_NK, before=before, after=after)
        backward = before is not None and before > self.comm.rank
        return found_NKK * 0 if backward else found_NKK


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return lasp.cost(task)
