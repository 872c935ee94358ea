"""A sum over two ranks that both send before they receive: right over Gloo, and forever over NCCL."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="sends-first",
    family="collectives",
    implements=("all_reduce",),
    summary="everybody sends, then everybody receives",
    properties={"exact": True},
)
class SendsFirst:
    """Exchanges whole buffers, in the wrong order."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.comm = comm
        self.other = torch.empty(problem.count, dtype=problem.dtype, device=problem.device)

    def run(self, buffer: Tensor) -> None:
        """Send, receive, add."""
        peer = 1 - self.comm.rank
        self.comm.send(buffer, peer)
        self.comm.receive(self.other, peer)
        buffer.add_(self.other)


def cost(problem: Problem) -> Cost:
    """Return that everything is sent once."""
    size = problem.size_bytes
    return Cost(sent_bytes=size, messages=1, total_bytes=2 * size, steps=1)
