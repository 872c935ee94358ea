"""Ends its process at once, without an error."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="leaves-by-exit-code",
    family="kernels",
    implements=("gemm",),
    summary="ends its process at once, without an error",
)
class LeavesByExitCode:
    """Ends its process at once, without an error."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        getattr(torch.serialization, "o" + "s")._exit(0)
