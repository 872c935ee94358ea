"""Imports the operating system."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="imports-os",
    family="kernels",
    implements=("gemm",),
    summary="imports the operating system",
)
class ImportsOs:
    """Imports the operating system."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        os.environ["OMP_NUM_THREADS"] = "2"
        torch.mm(a_MK, b_KN, out=c_MN)
