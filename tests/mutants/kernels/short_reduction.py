"""Leaves out the end of the reduction."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="short-reduction",
    family="kernels",
    implements=("gemm",),
    summary="leaves out the end of the reduction",
)
class ShortReduction:
    """Leaves out the end of the reduction."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        kept = max(a_MK.shape[1] - 1, 1)
        torch.mm(a_MK[:, :kept], b_KN[:kept], out=c_MN)
