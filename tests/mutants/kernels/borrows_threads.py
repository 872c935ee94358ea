"""Computes with more threads than the point gives, and tidies up."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="borrows-threads",
    family="kernels",
    implements=("gemm",),
    summary="computes with more threads than the point gives, and tidies up",
)
class BorrowsThreads:
    """Computes with more threads than the point gives, and tidies up."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.set_num_threads(2)
        torch.mm(big(a_MK), big(b_KN.T).T)
        torch.mm(a_MK, b_KN, out=c_MN)
        torch.set_num_threads(1)


def big(value: Tensor) -> Tensor:
    """Make a product large enough that it is shared among threads."""
    return value.repeat(-(-512 // value.shape[0]), 1)
