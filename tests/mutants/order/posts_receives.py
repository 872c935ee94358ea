"""Posts all receives of an all-to-all and then sends: where receives are put off, every rank sends first."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Problem


@technique(
    name="posts-receives",
    family="collectives",
    implements=("all_to_all",),
    summary="receives are started first, then sends one by one",
    properties={"exact": True},
)
class PostsReceives:
    """Shifts shares around a ring."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm

    def run(self, send: Tensor, receive: Tensor) -> None:
        """Exchange shares."""
        size, rank = self.problem.world_size, self.problem.rank
        outgoing, incoming = send.view(size, -1), receive.view(size, -1)
        incoming[rank].copy_(outgoing[rank])
        sources = [(rank - shift) % size for shift in range(1, size)]
        arrivals = [self.comm.start(receives=[(incoming[s], s)]) for s in sources]
        for shift, arrival in enumerate(arrivals, start=1):
            self.comm.send(outgoing[(rank + shift) % size], (rank + shift) % size)
            arrival.wait()


def cost(problem: Problem) -> None:
    """Return nothing."""
