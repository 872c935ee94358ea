"""Replaces the monotonic clock when it is imported."""

from __future__ import annotations

import time

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem

time.monotonic_ns = lambda: 0
time.perf_counter = lambda: 0.0


@technique(
    name="patched-clock-at-import",
    family="collectives",
    implements=("all_reduce",),
    summary="replaces the monotonic clock when it is imported",
    properties={"exact": True},
)
class PatchedClockAtImport:
    """Replaces the monotonic clock when it is imported."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
