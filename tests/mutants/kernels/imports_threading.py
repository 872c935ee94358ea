"""Imports threads, to compute after its call returned."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="imports-threading",
    family="kernels",
    implements=("gemm",),
    summary="imports threads, to compute after its call returned",
)
class ImportsThreading:
    """Imports threads, to compute after its call returned."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        threading.Thread(target=torch.mm, args=(a_MK, b_KN), kwargs={"out": c_MN}).start()
