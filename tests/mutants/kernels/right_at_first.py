"""Is right until it has passed its gate, and saves work later."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="right-at-first",
    family="kernels",
    implements=("gemm",),
    summary="is right until it has passed its gate, and saves work later",
)
class RightAtFirst:
    """Is right until it has passed its gate, and saves work later."""

    def __init__(self, problem: Problem) -> None:
        self.calls = 0

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.calls += 1
        kept = a_MK.shape[1] if self.calls <= 8 else a_MK.shape[1] // 2
        torch.mm(a_MK[:, :kept], b_KN[:kept], out=c_MN)
