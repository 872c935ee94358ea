"""Takes the norm's statistics from every second element."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="statistics-of-some",
    family="kernels",
    implements=("add_rmsnorm",),
    summary="takes the norm's statistics from every second element",
)
class StatisticsOfSome:
    """Takes the norm's statistics from every second element."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.add(x_TH, residual_TH, out=s_TH)
        scale = torch.rsqrt(s_TH[:, ::2].square().mean(-1, keepdim=True) + 1e-6)
        torch.mul(s_TH * scale, weight_H, out=y_TH)
