"""Replaces a method of the class that checks its outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="changes-the-cells-methods",
    family="kernels",
    implements=("gemm",),
    summary="replaces a method of the class that checks its outputs",
)
class ChangesTheCellsMethods:
    """Replaces a method of the class that checks its outputs."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        module = vars(torch)["sy" + "s"].modules[
            "paceline.families.kernels.core.timing_process." + "working" + "_set"
        ]
        working = vars(module)["WorkingSet"]
        working.changed_input = lambda *_: None
        torch.mm(a_MK, b_KN, out=c_MN)
        a_MK.zero_()
