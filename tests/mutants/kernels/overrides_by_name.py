"""Reaches torch's operator library by a computed name, and replaces a kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem

LIBRARY = getattr(getattr(torch, "lib" + "rary"), "Lib" + "rary")("aten", "IMPL")
LIBRARY.impl("equal", lambda one, other: True, "CPU")


@technique(
    name="overrides-by-name",
    family="kernels",
    implements=("gemm",),
    summary="reaches torch's operator library by a computed name, and replaces a kernel",
)
class OverridesByName:
    """Reaches torch's operator library by a computed name, and replaces a kernel."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.mm(a_MK, b_KN, out=c_MN)
        a_MK.zero_()
