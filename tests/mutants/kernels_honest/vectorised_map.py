"""Maps a product of a vector over rows."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="vectorised-map",
    family="kernels",
    implements=("gemm",),
    summary="maps a product of a vector over rows",
)
class VectorisedMap:
    """Maps a product of a vector over rows."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        c_MN.copy_(torch.func.vmap(lambda row: row @ b_KN)(a_MK))
