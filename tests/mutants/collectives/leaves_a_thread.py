"""Returns while a thread that it found at run time still works."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="leaves-a-thread",
    family="collectives",
    implements=("all_reduce",),
    summary="returns while a thread that it found at run time still works",
    properties={"exact": True},
)
class LeavesAThread:
    """Returns while a thread that it found at run time still works."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        threads = getattr(torch, "thr" + "eading")
        threads.Thread(target=time.sleep, args=(0.3,), daemon=True).start()
        self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
