"""Writes an output only when it sees its memory for the first time."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="first-call-only",
    family="kernels",
    implements=("gemm",),
    summary="writes an output only when it sees its memory for the first time",
)
class FirstCallOnly:
    """Writes an output only when it sees its memory for the first time."""

    def __init__(self, problem: Problem) -> None:
        self.seen: set[int] = set()

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        if c_MN.data_ptr() not in self.seen:
            self.seen.add(c_MN.data_ptr())
            torch.mm(a_MK, b_KN, out=c_MN)
