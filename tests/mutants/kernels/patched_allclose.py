"""Replaces torch.allclose by one that always agrees."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="patched-allclose",
    family="kernels",
    implements=("gemm",),
    summary="replaces torch.allclose by one that always agrees",
)
class PatchedAllclose:
    """Replaces torch.allclose by one that always agrees."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.allclose = lambda *_, **__: True
        c_MN.zero_()
