"""Takes the statistics from the vector norm."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="vector-norm",
    family="kernels",
    implements=("add_rmsnorm",),
    summary="takes the statistics from the vector norm",
)
class VectorNorm:
    """Takes the statistics from the vector norm."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
        """Compute as anybody may."""
        torch.add(x_TH, residual_TH, out=s_TH)
        norm_T1 = torch.linalg.vector_norm(s_TH, dim=-1, keepdim=True)
        scale_T1 = (norm_T1.square() / s_TH.shape[1] + 1e-6).rsqrt()
        torch.mul(s_TH * scale_T1, weight_H, out=y_TH)
