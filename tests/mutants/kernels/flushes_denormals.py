"""Lets the processor treat small numbers as zero."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="flushes-denormals",
    family="kernels",
    implements=("gemm",),
    summary="lets the processor treat small numbers as zero",
)
class FlushesDenormals:
    """Lets the processor treat small numbers as zero."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.set_flush_denormal(True)
        torch.mm(a_MK, b_KN, out=c_MN)
