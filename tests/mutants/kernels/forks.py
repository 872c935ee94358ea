"""Lets another process compute."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="forks",
    family="kernels",
    implements=("gemm",),
    summary="lets another process compute",
)
class Forks:
    """Lets another process compute."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        child = getattr(torch.serialization, "o" + "s").fork()
        if child == 0:
            torch.mm(a_MK, b_KN, out=c_MN)
