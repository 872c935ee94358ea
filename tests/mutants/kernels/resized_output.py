"""Makes its output smaller, so that there is less to write."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="resized-output",
    family="kernels",
    implements=("gemm",),
    summary="makes its output smaller, so that there is less to write",
)
class ResizedOutput:
    """Makes its output smaller, so that there is less to write."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        c_MN.resize_(1, c_MN.shape[1])
        torch.mm(a_MK[:1], b_KN, out=c_MN)
