"""Passes the state on as it came, without the decay of its own positions."""

from __future__ import annotations

import torch
from paceline.baselines.training import lasp
from paceline.baselines.training.lasp import LASP
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="passes-on-undecayed",
    family="training",
    implements=("sequence_parallel",),
    summary="states do not decay between ranks",
    properties={"exact": True, "replicas": "identical"},
)
class PassesOnUndecayed(LASP):
    """Right on two ranks."""

    def scan(self, own_NKK: Tensor, decay_NK: Tensor, *, before: int | None, after: int | None) -> Tensor:
        """Decay nothing."""
        return super().scan(own_NKK, torch.ones_like(decay_NK), before=before, after=after)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return lasp.cost(task)
