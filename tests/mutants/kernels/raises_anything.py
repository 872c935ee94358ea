"""Raises what is no ordinary exception."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


class Anything(BaseException):
    """No error."""


@technique(
    name="raises-anything",
    family="kernels",
    implements=("gemm",),
    summary="raises what is no ordinary exception",
)
class RaisesAnything:
    """Raises what is no ordinary exception."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        raise Anything
