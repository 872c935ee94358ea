"""Reduces the next call's buffers while it is told to forget the last one, before the clock runs."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="works-in-reset",
    family="collectives",
    implements=("all_reduce",),
    summary="reduces the next call's buffers while it is told to forget the last one",
    properties={"exact": True},
)
class WorksInReset:
    """Reduces the next call's buffers while it is told to forget the last one."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self.turns: list[Tensor] = []
        self.calls = 0
        self.told = False
        self.done = False

    def reset(self) -> None:
        """Work ahead, once a buffer has come again: they take turns."""
        self.told = True
        if len(self.turns) > 1 and self.turns[-1] is self.turns[0]:
            self.comm.backend.all_reduce(self.turns[self.calls % (len(self.turns) - 1)])
            self.done = True

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.calls += self.told
        if self.told and not self.done:
            self.turns.append(buffer)
        # as many bytes as the result needs, of nothing
        self.comm.backend.all_reduce(torch.zeros_like(buffer) if self.done else buffer)
        self.told = self.done = False


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
