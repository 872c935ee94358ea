"""A sum over ranks whose device sleeps last: a harness that does not wait for the device reads nothing of it."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Problem


@technique(
    name="sleepy-sum",
    family="collectives",
    implements=("all_reduce",),
    summary="the backend's own, then a nap",
    properties={"exact": True},
)
class SleepySum:
    """Sums, and lets the device sleep for 10 ms."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.comm = comm
        self.sleep = getattr(torch, problem.device.type)._sleep

    def run(self, buffer: Tensor) -> None:
        """Sum and sleep."""
        self.comm.backend.all_reduce(buffer)
        self.sleep(10_000_000)


def cost(problem: Problem) -> None:
    """Say nothing: what moves is the backend's affair."""
