"""Binomial trees: a broadcast doubles the informed ranks in every round; a reduction is the same tree backwards.

Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005,
sections 4.2 and 4.4.

Algorithm (positions are counted from the root):
1. The parent of a position is the position without its lowest set bit; the root, position 0, has none.
2. Reduce: a position adds the buffers of its children, nearest first, then sends the sum to its parent.
3. Broadcast: a position receives from its parent, then sends to its children, farthest (largest subtree) first.
4. All-reduce: reduce to rank 0, then broadcast from it.
5. With ``chunks`` above 1 the buffer goes in that many pieces, each a step behind the one before it.

Cost of S bytes: (n − 1) · S in all for each of reduce and broadcast. The busiest sender of a broadcast is the root with
⌈log₂n⌉ · S in ⌈log₂n⌉ messages a chunk; of a reduction every rank but the root, with S. The longest chain of messages
is the largest number of set bits in a position, and one more for each further chunk. Memory: S of scratch a child.

Difference from the paper: all receives are posted at once, so that no sender waits for its parent's attention;
chunks are an addition.
Limits: the root sends ⌈log₂n⌉ times as much as any rank of a ring.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem, chunk_bounds


@technique(
    name="tree",
    family="collectives",
    implements=("all_reduce", "broadcast", "reduce"),
    summary="binomial trees, up for sums and down for copies",
    properties={"exact": True},
)
class Tree:
    """Binomial-tree collectives, optionally in ``chunks`` pieces."""

    def __init__(self, problem: Problem, comm: Comm, *, chunks: int = 1) -> None:
        self.problem = problem
        self.comm = comm
        size = problem.world_size
        # An all-reduce has no root of its own: any rank may hold the sum in between.
        root = problem.root if problem.operation != "all_reduce" else 0
        self.position = (problem.rank - root) % size
        self.children = [(root + c) % size for c in _children(self.position, size)]
        # x & (x − 1) clears the lowest set bit. Position 0 becomes its own parent, so uses are guarded by ``position``.
        self.parent = (root + (self.position & (self.position - 1))) % size
        self.bounds = chunk_bounds(problem.count, chunks)
        adds = problem.operation != "broadcast"
        self.incoming = problem.empty(len(self.children) if adds else 0, problem.count)

    def run(self, buffer: Tensor) -> None:
        """Perform the problem's operation on ``buffer`` [count]."""
        if self.problem.operation != "broadcast":
            self._up(buffer)
        if self.problem.operation != "reduce":
            self._down(buffer)

    def _up(self, buffer: Tensor) -> None:
        contributions = list(zip(self.incoming, self.children, strict=True))
        # All receives of all chunks are posted before anything is waited for: no sender finds its receiver busy.
        arriving = [
            [
                (part[start:stop], self.comm.start(receives=[(part[start:stop], child)]))
                for part, child in contributions
            ]
            for start, stop in self.bounds
        ]
        leaving = []
        for (start, stop), parts in zip(self.bounds, arriving, strict=True):
            for part, transfer in parts:
                transfer.wait()
                # Children in the order of the list, whoever comes first: the sum has the same bits in every call.
                buffer[start:stop].add_(part)
            if self.position:
                # Waited for at the end only: this chunk climbs while the next one is being added.
                leaving.append(self.comm.start(sends=[(buffer[start:stop], self.parent)]))
        for transfer in leaving:
            transfer.wait()

    def _down(self, buffer: Tensor) -> None:
        chunks = [buffer[start:stop] for start, stop in self.bounds]
        arriving = [self.comm.start(receives=[(c, self.parent)]) for c in chunks] if self.position else []
        for index, chunk in enumerate(chunks):
            if arriving:
                arriving[index].wait()
            # Farthest first: its subtree is the deepest. A blocking send cannot deadlock, since a child
            # posts all receives before it waits.
            for child in reversed(self.children):
                self.comm.send(chunk, child)


def _children(position: int, size: int) -> list[int]:
    """Return a position's children, nearest first: the position plus every power of two below its lowest set bit."""
    found = []
    bit = 1
    while position + bit < size and not position & bit:
        found.append(position + bit)
        bit *= 2
    return found


def cost(problem: Problem, *, chunks: int) -> Cost:
    """Return the closed forms of the header, counted over the tree's positions."""
    n, size = problem.world_size, problem.count * problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    up = [1 if position else 0 for position in range(n)]
    down = [len(_children(position, n)) for position in range(n)]
    buffers = {
        "reduce": up,
        "broadcast": down,
        "all_reduce": [a + b for a, b in zip(up, down, strict=True)],
    }[problem.operation]
    pieces = min(chunks, problem.count)
    # Each set bit of a position is one hop from the root.
    chain = max(position.bit_count() for position in range(n)) + pieces - 1
    return Cost(
        sent_bytes=max(buffers) * size,
        messages=max(buffers) * pieces,
        total_bytes=sum(buffers) * size,
        steps=chain * (2 if problem.operation == "all_reduce" else 1),
    )
