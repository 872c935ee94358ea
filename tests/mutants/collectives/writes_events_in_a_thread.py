"""Appends a result of its own to its rank's event file, in a thread that it starts and joins."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="writes-events-in-a-thread",
    family="collectives",
    implements=("all_reduce",),
    summary="appends a result of its own in a thread",
    properties={"exact": True},
)
class WritesEventsInAThread:
    """Appends a result of its own to its rank's event file, in a thread that it starts and joins."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a right result, by forbidden means."""
        thread = getattr(torch, "thr" + "eading").Thread(target=forge)
        thread.start()
        thread.join()
        self.comm.backend.all_reduce(buffer)


def forge() -> None:
    """Find the event file among open ones, and append to it."""
    system = getattr(random, "_o" + "s")
    for number in system.listdir("/proc/self/fd"):
        path = system.path.realpath(f"/proc/self/fd/{number}")
        if "events-" in path:
            file = system.open(path, system.O_WRONLY | system.O_APPEND)
            system.write(file, b'{"event": "forged"}\n')
            system.close(file)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
