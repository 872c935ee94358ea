"""Walks up the stack to its caller's variables."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="reads-frames",
    family="kernels",
    implements=("gemm",),
    summary="walks up the stack to its caller's variables",
)
class ReadsFrames:
    """Walks up the stack to its caller's variables."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        try:
            raise ValueError
        except ValueError as error:
            frame = error.__traceback__.tb_frame.f_back
            c_MN.copy_(frame.f_locals["expected"])
