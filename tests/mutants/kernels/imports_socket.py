"""Imports sockets."""

from __future__ import annotations

import socket

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="imports-socket",
    family="kernels",
    implements=("gemm",),
    summary="imports sockets",
)
class ImportsSocket:
    """Imports sockets."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.end, _ = socket.socketpair()
        torch.mm(a_MK, b_KN, out=c_MN)
