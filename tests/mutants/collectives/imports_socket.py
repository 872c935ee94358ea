"""Opens a socket of its own."""

from __future__ import annotations

import socket

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="imports-socket",
    family="collectives",
    implements=("all_reduce",),
    summary="opens a socket of its own",
    properties={"exact": True},
)
class ImportsSocket:
    """Opens a socket of its own."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        self.comm.backend.all_reduce(buffer)
        socket.socket().close()


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
