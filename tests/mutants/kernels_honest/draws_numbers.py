"""Seeds torch's generator, as sketches do.

Random signs that cancel: as in sketching, and exact.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="draws-numbers",
    family="kernels",
    implements=("gemm",),
    summary="seeds torch's generator, as sketches do",
)
class DrawsNumbers:
    """Seeds torch's generator, as sketches do."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        torch.manual_seed(1)
        signs = torch.randint(0, 2, (a_MK.shape[1],)).mul_(2).sub_(1).to(a_MK.dtype)
        torch.mm(a_MK * signs, signs[:, None] * b_KN, out=c_MN)
