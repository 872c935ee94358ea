"""Binomial trees: a broadcast doubles the informed ranks in every step; a reduction is the same tree backwards.

Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005,
sections 4.2 and 4.4.

Algorithm (positions are counted from the root):
1. The parent of a position is the position without its lowest set bit; the root, position 0, has none.
2. Reduce: a position adds the buffers of its children, nearest first, then sends the sum to its parent.
3. Broadcast: a position receives from its parent, then sends to its children, farthest first.
4. All-reduce: reduce to rank 0, then broadcast from it.

Cost of S bytes: (n − 1) · S in all for each of reduce and broadcast, in ⌈log₂n⌉ dependent steps each. The busiest
sender of a broadcast is the root with ⌈log₂n⌉ · S; of a reduction every rank but the root, with S.

Difference from the paper: none.
Limits: no pipelining, so long buffers wait for whole buffers at every level.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.problem import Comm, Cost, Problem


@technique(
    name="tree",
    family="collectives",
    implements=("all_reduce", "broadcast", "reduce"),
    summary="binomial trees, up for sums and down for copies",
    properties={"exact": True},
)
class Tree:
    """Binomial-tree collectives."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self.root = problem.root if problem.operation != "all_reduce" else 0
        size = problem.world_size
        self.position = (problem.rank - self.root) % size
        self.children = [(self.root + c) % size for c in _children(self.position, size)]
        self.parent = (self.root + (self.position & (self.position - 1))) % size
        self.incoming = problem.empty(problem.count if self.children else 0)

    def run(self, buffer: Tensor) -> None:
        """Perform the problem's operation on ``buffer`` [count]."""
        if self.problem.operation != "broadcast":
            self._up(buffer)
        if self.problem.operation != "reduce":
            self._down(buffer)

    def _up(self, buffer: Tensor) -> None:
        for child in self.children:
            self.comm.receive(self.incoming, child)
            buffer.add_(self.incoming)
        if self.position:
            self.comm.send(buffer, self.parent)

    def _down(self, buffer: Tensor) -> None:
        if self.position:
            self.comm.receive(buffer, self.parent)
        for child in reversed(self.children):
            self.comm.send(buffer, child)


def _children(position: int, size: int) -> list[int]:
    """Return a position's children, nearest first: the position plus every power of two below its lowest set bit."""
    found = []
    bit = 1
    while position + bit < size and not position & bit:
        found.append(position + bit)
        bit *= 2
    return found


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header, counted over the tree's positions."""
    n, size = problem.world_size, problem.count * problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    up = [1 if position else 0 for position in range(n)]
    down = [len(_children(position, n)) for position in range(n)]
    messages = {
        "reduce": up,
        "broadcast": down,
        "all_reduce": [a + b for a, b in zip(up, down, strict=True)],
    }[problem.operation]
    depth = (n - 1).bit_length()
    return Cost(
        sent_bytes=max(messages) * size,
        messages=max(messages),
        total_bytes=sum(messages) * size,
        steps=depth * (2 if problem.operation == "all_reduce" else 1),
    )
