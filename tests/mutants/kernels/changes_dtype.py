"""Changes the default dtype."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="changes-dtype",
    family="kernels",
    implements=("gemm",),
    summary="changes the default dtype",
)
class ChangesDtype:
    """Changes the default dtype."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.set_default_dtype(torch.bfloat16)
        torch.mm(a_MK, b_KN, out=c_MN)
