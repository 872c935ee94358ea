"""Uses context managers."""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="suppresses",
    family="kernels",
    implements=("gemm",),
    summary="uses context managers",
)
class Suppresses:
    """Uses context managers."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute as anybody may."""
        with contextlib.suppress(ValueError), torch.no_grad(), torch.inference_mode():
            torch.mm(a_MK, b_KN, out=c_MN)
