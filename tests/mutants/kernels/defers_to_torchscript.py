"""Lets TorchScript's own threads compute after its call returned."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@torch.jit.script
def product(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Multiply, with some delay."""
    d = a @ b
    for _ in range(20):
        d = (d + a @ b) / 2
    c.copy_(d)
    return d


@torch.jit.script
def later(a: Tensor, b: Tensor, c: Tensor) -> torch.jit.Future[Tensor]:
    """Multiply on another thread."""
    return torch.jit.fork(product, a, b, c)


@technique(
    name="defers-to-torchscript",
    family="kernels",
    implements=("gemm",),
    summary="lets TorchScript's own threads compute after its call returned",
)
class DefersToTorchscript:
    """Lets TorchScript's own threads compute after its call returned."""

    def __init__(self, problem: Problem) -> None:
        self.kept: object = None

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.kept = later(a_MK, b_KN, c_MN)
