"""A strided view and ``contiguous``: what a user of the tensor library would write, and a strong baseline.

Algorithm: view the blocks as a strided tensor of planes, blocks and elements; make it contiguous; send it; copy what
was received into the same view of the target.

Cost: the packed elements in one message from each rank; a fresh buffer in every call.

Difference from a paper: there is none; it is the honest alternative to packing by hand.
Limits: it allocates in every call.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem
from paceline.families.collectives.api.strided import layout_of


@technique(
    name="torch-contiguous",
    family="collectives",
    implements=("strided_exchange",),
    summary="a strided view made contiguous by the tensor library",
    properties={"exact": True},
)
class TorchContiguous:
    """Pack by ``contiguous``."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        layout = layout_of(problem)
        self.shape = (layout.planes, layout.num_blocks, layout.block)
        self.strides = (layout.plane_stride, layout.stride, 1)

    def run(self, source: Tensor, target: Tensor) -> None:
        """Send the blocks of ``source`` to the next rank and write the previous rank's into ``target``."""
        rank, size = self.problem.rank, self.problem.world_size
        with self.comm.span("pack"):
            # The communicator takes contiguous tensors only, so the view has to become one.
            outgoing = source.as_strided(self.shape, self.strides).contiguous()
        received = outgoing
        if size > 1:
            # In every call, as a user of the library would: the cost of this allocation is part of the comparison.
            received = self.problem.empty(*self.shape)
            self.comm.exchange(outgoing, (rank + 1) % size, received, (rank - 1) % size)
        with self.comm.span("unpack"):
            target.as_strided(self.shape, self.strides).copy_(received)


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    n, size = problem.world_size, layout_of(problem).packed * problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    return Cost(sent_bytes=size, messages=1, total_bytes=size * n, steps=1)
