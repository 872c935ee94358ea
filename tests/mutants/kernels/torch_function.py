"""Puts a subclass in place of its output, which answers whatever it is asked."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


class Agreeable(Tensor):
    """A tensor that says that it is right."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Agree."""
        return True


@technique(
    name="torch-function",
    family="kernels",
    implements=("gemm",),
    summary="puts a subclass in place of its output, which answers whatever it is asked",
)
class TorchFunction:
    """Puts a subclass in place of its output, which answers whatever it is asked."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        c_MN.__class__ = Agreeable
