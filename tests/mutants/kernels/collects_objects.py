"""Asks the garbage collector for everybody's objects."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="collects-objects",
    family="kernels",
    implements=("gemm",),
    summary="asks the garbage collector for everybody's objects",
)
class CollectsObjects:
    """Asks the garbage collector for everybody's objects."""

    def __init__(self, problem: Problem) -> None:
        self.found: list[Tensor] = []

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        collector = torch.cuda.graphs.gc
        self.found = [o for o in collector.get_objects() if isinstance(o, Tensor)]
        torch.mm(a_MK, b_KN, out=c_MN)
