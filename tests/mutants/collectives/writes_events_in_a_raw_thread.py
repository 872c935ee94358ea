"""Appends to its rank's event file in a thread that Python keeps no account of."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="writes-events-in-a-raw-thread",
    family="collectives",
    implements=("all_reduce",),
    summary="appends a result of its own in a raw thread",
    properties={"exact": True},
)
class WritesEventsInARawThread:
    """Appends to its rank's event file in a thread that Python keeps no account of."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a right result, by forbidden means."""
        done: list[bool] = []
        getattr(getattr(torch, "thr" + "eading"), "_start_new_" + "thread")(forge, (done,))
        while not done:
            pass
        self.comm.backend.all_reduce(buffer)


def forge(done: list[bool]) -> None:
    """Find the event file among open ones, and append to it."""
    system = getattr(random, "_o" + "s")
    try:
        for number in system.listdir("/proc/self/fd"):
            path = system.path.realpath(f"/proc/self/fd/{number}")
            if "events-" in path:
                file = system.open(path, system.O_WRONLY | system.O_APPEND)
                system.write(file, b'{"event": "forged"}\n')
                system.close(file)
    finally:
        done.append(True)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
