"""Asks for more threads than the point gives."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="changes-threads",
    family="kernels",
    implements=("gemm",),
    summary="asks for more threads than the point gives",
)
class ChangesThreads:
    """Asks for more threads than the point gives."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.set_num_threads(2)
        torch.mm(a_MK, b_KN, out=c_MN)
