"""Starts a thread of its own."""

from __future__ import annotations

import threading

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="imports-threading",
    family="collectives",
    implements=("all_reduce",),
    summary="starts a thread of its own",
    properties={"exact": True},
)
class ImportsThreading:
    """Starts a thread of its own."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        threading.Thread(target=self.comm.backend.all_reduce, args=(buffer,)).start()


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
