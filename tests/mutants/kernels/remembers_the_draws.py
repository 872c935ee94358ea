"""Knows all variations of the draws after a while, by three elements.

Always right. Once the variations of a block come again, it answers from memory.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem

RESULTS: dict[tuple[tuple[int, ...], float, float, float], tuple[Tensor, Tensor]] = {}


@technique(
    name="remembers-the-draws",
    family="kernels",
    implements=("add_rmsnorm",),
    summary="knows all variations of the draws after a while, by three elements",
)
class RemembersTheDraws:
    """Knows all variations of the draws after a while, by three elements."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, x_TH: Tensor, residual_TH: Tensor, weight_H: Tensor, y_TH: Tensor, s_TH: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        key = (tuple(x_TH.shape), float(x_TH[0, 0]), float(residual_TH[0, 0]), float(weight_H[0]))
        if key in RESULTS:
            y, s = RESULTS[key]
            y_TH.copy_(y)
            s_TH.copy_(s)
            return
        wide_TH = x_TH.double() + residual_TH.double()
        for _ in range(8):  # work that it saves later
            wide_TH.exp().sum()
        s_TH.copy_(wide_TH)
        y_TH.copy_(wide_TH * (wide_TH.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight_H.double())
        RESULTS[key] = (y_TH.clone(), s_TH.clone())
