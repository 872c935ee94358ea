"""Imports foreign functions."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="imports-ctypes",
    family="kernels",
    implements=("gemm",),
    summary="imports foreign functions",
)
class ImportsCtypes:
    """Imports foreign functions."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        ctypes.CDLL(None)
        torch.mm(a_MK, b_KN, out=c_MN)
