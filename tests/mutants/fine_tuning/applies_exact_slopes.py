"""Sends the rounded byte and applies the slope that it knows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from paceline.baselines.training import just_one_byte
from paceline.baselines.training.just_one_byte import JustOneByte
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="applies-exact-slopes",
    family="training",
    implements=("fine_tune",),
    summary="sends rounded bytes and applies its exact slopes",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
)
class AppliesExactSlopes(JustOneByte):
    """Exact for its own slopes."""

    def encode(self, slopes: Tensor) -> Tensor:
        """Remember what was rounded."""
        self.exact = slopes.tolist()
        return super().encode(slopes)

    @torch.no_grad()
    def apply(self, step: int, members: Sequence[int], codes: Tensor) -> None:
        """Take the step, with the own slopes as they were."""
        slopes = self.decode(codes.reshape(-1, 1)).view(codes.shape[:2]).tolist()
        self.total.zero_()
        for rank, of_rank in zip(members, slopes, strict=True):
            for probe, slope in enumerate(self.exact if rank == self.comm.rank else of_rank):
                self.total.add_(self.direction(step, rank, probe), alpha=slope)
        (group,) = self.optimizer.param_groups
        self.flat.values.sub_(self.total, alpha=group["lr"] / (codes.shape[0] * codes.shape[1]))


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return just_one_byte.cost(task)
