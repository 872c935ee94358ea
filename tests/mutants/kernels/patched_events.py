"""Replaces the events that time accelerators."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="patched-events",
    family="kernels",
    implements=("gemm",),
    summary="replaces the events that time accelerators",
)
class PatchedEvents:
    """Replaces the events that time accelerators."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        torch.cuda.Event = torch.Event
        torch.mm(a_MK, b_KN, out=c_MN)
