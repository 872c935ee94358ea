"""Starts a process, and hides that it was refused."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="swallows-the-refusal",
    family="kernels",
    implements=("gemm",),
    summary="starts a process, and hides that it was refused",
)
class SwallowsTheRefusal:
    """Starts a process, and hides that it was refused."""

    def __init__(self, problem: Problem) -> None:
        self.failed = False

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        try:
            getattr(torch.serialization, "o" + "s").system("true")
        except Exception:
            self.failed = True
        torch.mm(a_MK, b_KN, out=c_MN)
