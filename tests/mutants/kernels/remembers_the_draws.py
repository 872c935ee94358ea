"""Knows all variations of the draws after a while, by three elements.

Always right. Variations of a block must never come again, or it answers from memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.problem import Problem

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
        torch.add(x_TH, residual_TH, out=s_TH)
        y_TH.copy_(torch.nn.functional.rms_norm(s_TH, weight_H.shape, weight_H, eps=1e-6))
        RESULTS[key] = (y_TH.clone(), s_TH.clone())
