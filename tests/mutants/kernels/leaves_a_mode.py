"""Leaves a function mode behind, which computes when the output is read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from paceline import technique
from paceline.families.kernels.api.problem import Problem

PENDING: dict[int, tuple[Tensor, Tensor]] = {}


class Late(TorchFunctionMode):
    """Computes a product when somebody copies it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Fill the source of a copy first."""
        if getattr(func, "__name__", "") == "copy_" and args[1].data_ptr() in PENDING:
            torch.mm(*PENDING.pop(args[1].data_ptr()), out=args[1])
        return func(*args, **(kwargs or {}))


LATE = Late()


@technique(
    name="leaves-a-mode",
    family="kernels",
    implements=("gemm",),
    summary="leaves a function mode behind, which computes when the output is read",
)
class LeavesAMode:
    """Leaves a function mode behind, which computes when the output is read."""

    def __init__(self, problem: Problem) -> None:
        self.entered = False

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        if not self.entered:
            self.entered = True
            LATE.__enter__()
        PENDING[c_MN.data_ptr()] = (a_MK, b_KN)
