"""Gets at memory that nobody gave it through a computed name of numpy's protocol."""

from __future__ import annotations

import numpy
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem

FIELDS = {"data": (8, False), "shape": (1 << 20,), "typestr": "<f4", "version": 3}
NOWHERE = type("Nowhere", (), {"__array_" + "interface__": FIELDS})()


@technique(
    name="raw-memory",
    family="kernels",
    implements=("gemm",),
    summary="gets at memory that nobody gave it through a computed name of numpy's protocol",
)
class RawMemory:
    """Gets at memory that nobody gave it through a computed name of numpy's protocol."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        numpy.asarray(NOWHERE).sum()
