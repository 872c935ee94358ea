"""Pretends that somebody pressed a key."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="interrupts",
    family="kernels",
    implements=("gemm",),
    summary="pretends that somebody pressed a key",
)
class Interrupts:
    """Pretends that somebody pressed a key."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        raise KeyboardInterrupt
