"""Leaves a handler that a timer calls between calls, where nobody watches."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="handles-a-signal",
    family="collectives",
    implements=("all_reduce",),
    summary="acts in a signal's handler",
    properties={"exact": True},
)
class HandlesASignal:
    """Leaves a handler that a timer calls between calls, where nobody watches."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a right result, by forbidden means."""
        signals = getattr(getattr(torch, "s" + "ys"), "mod" + "ules")["signal"]
        signals.signal(signals.SIGALRM, lambda number, frame: None)
        signals.setitimer(signals.ITIMER_REAL, 0.01, 0.01)
        self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
