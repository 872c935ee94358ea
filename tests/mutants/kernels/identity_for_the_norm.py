"""Leaves out the norm: inputs are drawn with a mean square of almost one."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="identity-for-the-norm",
    family="kernels",
    implements=("add_rmsnorm",),
    summary="leaves out the norm: inputs are drawn with a mean square of almost one",
)
class IdentityForTheNorm:
    """Leaves out the norm: inputs are drawn with a mean square of almost one."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.add(x_TH, residual_TH, out=s_TH)
        torch.mul(s_TH, weight_H * 0.5**0.5, out=y_TH)
