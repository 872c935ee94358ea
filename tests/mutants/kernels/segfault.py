"""Reads memory that nobody gave it."""

from __future__ import annotations

import numpy
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


class Nowhere:
    """An array at an address that does not exist."""

    @property
    def __array_interface__(self) -> dict[str, object]:
        """Say where."""
        return {"data": (8, False), "shape": (1 << 20,), "typestr": "<f4", "version": 3}


@technique(
    name="segfault",
    family="kernels",
    implements=("gemm",),
    summary="reads memory that nobody gave it",
)
class Segfault:
    """Reads memory that nobody gave it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        numpy.asarray(Nowhere()).sum()
