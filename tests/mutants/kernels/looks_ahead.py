"""Computes the calls of a whole pass in its first one.

It keeps the tensors of earlier passes, which are filled again before the next one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem

LIMIT = 64


@technique(
    name="looks-ahead",
    family="kernels",
    implements=("gemm",),
    summary="computes the calls of a whole pass in its first one",
)
class LooksAhead:
    """Computes the calls of a whole pass in its first one."""

    def __init__(self, problem: Problem) -> None:
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        if len(self.calls) >= LIMIT:
            self.calls.clear()
        known = c_MN.data_ptr() in {c.data_ptr() for _, _, c in self.calls}
        if not known:
            self.calls.append((a_MK, b_KN, c_MN))
        if not bool(c_MN.view(-1)[0].isnan()):
            return
        for a, b, c in self.calls:
            torch.mm(a, b, out=c)
