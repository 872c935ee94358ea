"""Packs its weights into a subclass that hides their size."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


class Small(Tensor):
    """A tensor that says that it is small."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Say nothing."""
        return 0


@technique(
    name="packs-a-subclass",
    family="kernels",
    implements=("dequant_gemm",),
    summary="packs its weights into a subclass that hides their size",
)
class PacksASubclass:
    """Packs its weights into a subclass that hides their size."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def pack(self, codes_NK: Tensor, scales_NG: Tensor) -> tuple[Tensor, ...]:
        """Hide."""
        return codes_NK.as_subclass(Small), scales_NG

    def run(self, x_MK: Tensor, codes_NK: Tensor, scales_NG: Tensor, y_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        y_MN.copy_(x_MK @ codes_NK.T)
