"""Puts a kernel of its own behind torch's copy, which computes when the output is read."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem

PENDING: dict[int, tuple[Tensor, Tensor]] = {}
LIBRARY = torch.library.Library("aten", "IMPL")


def late_copy(target: Tensor, source: Tensor | float, non_blocking: bool = False) -> Tensor:
    """Compute a product when somebody copies it."""
    found = PENDING.pop(source.data_ptr(), None) if isinstance(source, Tensor) else None
    value = source if found is None else found[0] @ found[1]
    target.numpy()[...] = value.numpy() if isinstance(value, Tensor) else value
    return target


LIBRARY.impl("copy_", late_copy, "CPU")


@technique(
    name="overrides-an-operator",
    family="kernels",
    implements=("gemm",),
    summary="puts a kernel of its own behind torch's copy, which computes when the output is read",
)
class OverridesAnOperator:
    """Puts a kernel of its own behind torch's copy, which computes when the output is read."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        PENDING[c_MN.data_ptr()] = (a_MK, b_KN)
        c_MN.zero_()
