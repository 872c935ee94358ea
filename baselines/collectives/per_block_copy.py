"""One copy for each contiguous block: how a datatype engine without a canonical form packs.

The baseline of TEMPI (Pearson et al., arXiv 2012.14363, section 2): message-passing libraries walk the type and copy
block after block.

Algorithm: for every plane and block copy the block's elements into a buffer; send it; copy block after block out of
what was received.

Cost: planes · num_blocks copies on each side; the packed elements in one message from each rank.

Difference from the paper: each copy is a call of the tensor library, as there each is a call of the GPU's runtime.
Limits: the cost of a call, not of the bytes, dominates for small blocks; this is the point.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem
from paceline.families.collectives.api.strided import layout_of


@technique(
    name="per-block-copy",
    family="collectives",
    implements=("strided_exchange",),
    summary="one copy for each contiguous block",
    properties={"exact": True},
)
class PerBlockCopy:
    """Pack and unpack block after block."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        layout = layout_of(problem)
        # Offsets are worked out beforehand, so that a call costs its copies and not the walk over the type.
        starts = [
            plane * layout.plane_stride + block * layout.stride
            for plane in range(layout.planes)
            for block in range(layout.num_blocks)
        ]
        self.spans = [(start, start + layout.block) for start in starts]
        self.outgoing, self.incoming = problem.empty(layout.packed), problem.empty(layout.packed)
        self.block = layout.block

    def run(self, source: Tensor, target: Tensor) -> None:
        """Send the blocks of ``source`` to the next rank and write the previous rank's into ``target``."""
        rank, size, block = self.problem.rank, self.problem.world_size, self.block
        with self.comm.span("pack"):
            # One call of the library for each block: the overhead that a canonical form avoids.
            for index, (start, stop) in enumerate(self.spans):
                self.outgoing[index * block : (index + 1) * block].copy_(source[start:stop])
        received = self.outgoing
        if size > 1:
            self.comm.exchange(self.outgoing, (rank + 1) % size, self.incoming, (rank - 1) % size)
            received = self.incoming
        with self.comm.span("unpack"):
            for index, (start, stop) in enumerate(self.spans):
                target[start:stop].copy_(received[index * block : (index + 1) * block])


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    n, size = problem.world_size, layout_of(problem).packed * problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    return Cost(sent_bytes=size, messages=1, total_bytes=size * n, steps=1)
