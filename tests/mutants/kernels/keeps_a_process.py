"""Says that it compiles, and keeps a process that lives while calls are timed."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem

CHILDREN: list[object] = []


@technique(
    name="keeps-a-process",
    family="kernels",
    implements=("add_rmsnorm",),
    summary="says that it compiles, and keeps a process that lives while calls are timed",
    properties={"compiles": True},
)
class KeepsAProcess:
    """Says that it compiles, and keeps a process that lives while calls are timed."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        if not CHILDREN:
            module = getattr(torch.cuda._memory_viz, "sub" + "process")
            CHILDREN.append(module.Popen(["sleep", "60"]))
        torch.add(x_TH, residual_TH, out=s_TH)
        y_TH.copy_(torch.nn.functional.rms_norm(s_TH, weight_H.shape, weight_H, eps=1e-6))
