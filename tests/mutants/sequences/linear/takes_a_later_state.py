"""Takes the state after its positions for the one before them."""

from __future__ import annotations

from paceline.baselines.training import lasp
from paceline.baselines.training.lasp import LASP
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="takes-a-later-state",
    family="training",
    implements=("sequence_parallel",),
    summary="the state of the wrong rank",
    properties={"exact": True, "replicas": "identical"},
)
class TakesALaterState(LASP):
    """Its positions count twice."""

    def scan(self, own_NKK: Tensor, decay_NK: Tensor, *, before: int | None, after: int | None) -> Tensor:
        """Add what is there already."""
        prefix_NKK = super().scan(own_NKK, decay_NK, before=before, after=after)
        return prefix_NKK * decay_NK.unsqueeze(-1) + own_NKK


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return lasp.cost(task)
