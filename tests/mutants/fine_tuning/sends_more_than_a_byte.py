"""Sends every other rank the exact slopes beside the bytes."""

from __future__ import annotations

import torch
from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="sends-more-than-a-byte",
    family="training",
    implements=("fine_tune",),
    summary="sends exact slopes beside its bytes",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class SendsMoreThanAByte(JustOneByte):
    """Says that a byte is all."""

    def encode(self, slopes: Tensor) -> Tensor:
        """Remember what was rounded."""
        self.exact = slopes.float()
        return super().encode(slopes)

    def exchange_gradients(self, step: int) -> None:
        """Exchange bytes, then more."""
        super().exchange_gradients(step)
        theirs = torch.empty_like(self.exact)
        for rank in self.members:
            if rank != self.comm.rank:
                self.comm.exchange(self.exact, rank, theirs, rank)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
