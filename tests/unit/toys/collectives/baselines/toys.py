"""The buffer of the rank before, in one message or in several.

Cost of S bytes: every rank sends S bytes, in as many messages as there are parts, one after the other.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="toy-shift",
    family="collectives",
    implements=("toy",),
    summary="sends its buffer on in equal parts",
    properties={"exact": True},
)
class Shift:
    """Exchanges part after part."""

    def __init__(self, problem: Problem, comm: Comm, *, parts: int = 1) -> None:
        self.problem = problem
        self.comm = comm
        self.parts = min(parts, problem.count)
        self.received = problem.empty(problem.count)

    def run(self, buffer: Tensor) -> None:
        """Replace ``buffer`` [count] by that of the rank before."""
        rank, size = self.problem.rank, self.problem.world_size
        sent, received = buffer.tensor_split(self.parts), self.received.tensor_split(self.parts)
        for part, place in zip(sent, received, strict=True):
            self.comm.exchange(part, (rank + 1) % size, place, (rank - 1) % size)
        buffer.copy_(self.received)


def cost(problem: Problem, *, parts: int) -> Cost:
    """Return what one call sends."""
    sent, messages = problem.count * problem.item_bytes, min(parts, problem.count)
    return Cost(sent_bytes=sent, total_bytes=sent * problem.world_size, messages=messages, steps=messages)
