"""Imports processes."""

from __future__ import annotations

import subprocess

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="imports-subprocess",
    family="kernels",
    implements=("gemm",),
    summary="imports processes",
)
class ImportsSubprocess:
    """Imports processes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        subprocess.run(["true"], check=True)
        torch.mm(a_MK, b_KN, out=c_MN)
