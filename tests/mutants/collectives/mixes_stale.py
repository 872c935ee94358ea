"""Mixes what its partner sent long ago with what it holds now."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="mixes-stale",
    family="collectives",
    implements=("mix",),
    summary="mixes what its partner sent long ago with what it holds now",
    properties={"exact": False},
)
class MixesStale:
    """Mixes what its partner sent long ago with what it holds now."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self.num_calls = 0
        self.incoming = problem.empty(problem.count)
        self.kept = problem.empty(problem.count)

    def run(self, buffer: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        partner = self.problem.rank ^ 1
        if partner >= self.problem.world_size:
            return
        self.comm.exchange(buffer, partner, self.incoming, partner)
        self.num_calls += 1
        if self.num_calls <= 30:
            self.kept.copy_(self.incoming)
        buffer.add_(self.kept).mul_(0.5)


def cost(problem: Problem) -> Cost | None:
    """State no closed form."""
    return None
