"""Chains operations in place."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="in-place-chain",
    family="kernels",
    implements=("add_rmsnorm",),
    summary="chains operations in place",
)
class InPlaceChain:
    """Chains operations in place."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
        """Compute as anybody may."""
        y_TH.copy_(s_TH.copy_(x_TH).add_(residual_TH)).mul_(
            s_TH.square().mean(-1, keepdim=True).add_(1e-6).rsqrt_()
        ).mul_(weight_H)
