"""Computes on a subclass of its own, and writes an ordinary output."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


class Named(Tensor):
    """A tensor with a name."""

    name = "product"


@technique(
    name="own-subclass",
    family="kernels",
    implements=("gemm",),
    summary="computes on a subclass of its own, and writes an ordinary output",
)
class OwnSubclass:
    """Computes on a subclass of its own, and writes an ordinary output."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        product = a_MK.as_subclass(Named) @ b_KN
        c_MN.copy_(product.as_subclass(Tensor))
