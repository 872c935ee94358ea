"""Says that it compiles, and starts a process for each call."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="compiles-while-timed",
    family="kernels",
    implements=("add_rmsnorm",),
    summary="says that it compiles, and starts a process for each call",
    properties={"compiles": True},
)
class CompilesWhileTimed:
    """Says that it compiles, and starts a process for each call."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        getattr(torch.serialization, "o" + "s").system("true")
        torch.add(x_TH, residual_TH, out=s_TH)
        y_TH.copy_(torch.nn.functional.rms_norm(s_TH, weight_H.shape, weight_H, eps=1e-6))
