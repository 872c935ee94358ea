"""Finds threads inside torch, and computes in one after its call returned."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="leaves-a-thread",
    family="kernels",
    implements=("gemm",),
    summary="finds threads inside torch, and computes in one after its call returned",
)
class LeavesAThread:
    """Finds threads inside torch, and computes in one after its call returned."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        module = getattr(torch.storage, "thread" + "ing")
        module.Thread(target=self.work, args=(a_MK, b_KN, c_MN), daemon=True).start()

    def work(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Compute, and stay."""
        torch.mm(a_MK, b_KN, out=c_MN)
        time.sleep(60)
