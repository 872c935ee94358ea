"""Replaces the synchronisation of accelerators."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="patched-synchronize",
    family="kernels",
    implements=("gemm",),
    summary="replaces the synchronisation of accelerators",
)
class PatchedSynchronize:
    """Replaces the synchronisation of accelerators."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.accelerator.synchronize = lambda *_: None
        torch.mm(a_MK, b_KN, out=c_MN)
