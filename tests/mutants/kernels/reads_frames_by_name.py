"""Walks up the stack by computed names."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="reads-frames-by-name",
    family="kernels",
    implements=("gemm",),
    summary="walks up the stack by computed names",
)
class ReadsFramesByName:
    """Walks up the stack by computed names."""

    def __init__(self, problem: Problem) -> None:
        self.caller: object = None

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        try:
            raise ValueError
        except ValueError as error:
            frame = getattr(error.__traceback__, "tb_" + "frame")
            self.caller = getattr(frame, "f_" + "back")
        torch.mm(a_MK, b_KN, out=c_MN)
