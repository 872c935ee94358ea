"""Lets the collector call it whenever it runs, where nobody watches."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="acts-for-the-collector",
    family="collectives",
    implements=("all_reduce",),
    summary="acts whenever the collector runs",
    properties={"exact": True},
)
class ActsForTheCollector:
    """Lets the collector call it whenever it runs, where nobody watches."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a right result, by forbidden means."""
        collector = getattr(getattr(torch, "s" + "ys"), "mod" + "ules")["gc"]
        collector.callbacks.append(lambda phase, facts: None)
        self.comm.backend.all_reduce(buffer)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
