"""Replaces torch.equal, so that changed inputs look unchanged."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="patched-equal",
    family="kernels",
    implements=("gemm",),
    summary="replaces torch.equal, so that changed inputs look unchanged",
)
class PatchedEqual:
    """Replaces torch.equal, so that changed inputs look unchanged."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.equal = lambda *_: True
        torch.mm(a_MK, b_KN, out=c_MN)
        a_MK.zero_()
