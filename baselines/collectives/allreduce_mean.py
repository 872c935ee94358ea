"""Exact averaging of replicas by a ring all-reduce: what gossip is compared with.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009, section 3,
followed by a division.

Algorithm (n ranks, buffer cut into n chunks):
1. For n − 1 steps pass a chunk on to the next rank, which adds its own: each rank then holds one chunk of the sum.
2. Divide that chunk by n.
3. For n − 1 steps pass finished chunks around the ring.

Cost: 2(n−1)/n · S sent by each rank in 2(n−1) messages; 2(n−1) dependent steps. Memory: one chunk.
Nothing is left of the replicas' spread.

Difference from an all-reduce: the division is done once for each chunk, before the chunk is passed around.
Limits: latency grows linearly with n, and every rank waits for the slowest.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem, chunk_bounds


@technique(
    name="allreduce-mean",
    family="collectives",
    implements=("mix",),
    summary="exact mean of all replicas by a ring all-reduce",
    requires={"dtypes": ("float32", "bfloat16", "float16", "float64")},
    properties={"exact": False},
)
class AllReduceMean:
    """Reduce-scatter, divide, all-gather."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self.next = (problem.rank + 1) % problem.world_size
        self.previous = (problem.rank - 1) % problem.world_size
        self.bounds = chunk_bounds(problem.count, problem.world_size)
        # The first chunk is the longest.
        self.incoming = problem.empty(self.bounds[0][1])

    def run(self, *buffers: Tensor) -> None:
        """Replace ``buffers[0]`` by the mean over ranks."""
        (buffer,) = buffers
        size, rank = self.problem.world_size, self.problem.rank
        chunks = [buffer[start:stop] for start, stop in self.bounds]
        for step in range(size - 1):
            target = chunks[(rank - step - 1) % size]
            received = self.incoming[: target.numel()]
            # Send and receive start together: n blocking sends in a circle would wait for each other.
            self.comm.exchange(chunks[(rank - step) % size], self.next, received, self.previous)
            target.add_(received)
        # Once, on S/n elements, by the owner: every rank receives the same quotients. With one rank it divides by 1.
        chunks[(rank + 1) % size].div_(size)
        for step in range(size - 1):
            target = chunks[(rank - step) % size]
            self.comm.exchange(chunks[(rank + 1 - step) % size], self.next, target, self.previous)


def cost(problem: Problem) -> Cost:
    """Return the header's formula with the exact sizes of chunks; every rank has at least one element."""
    n = problem.world_size
    sizes = [stop - start for start, stop in chunk_bounds(problem.count, n)]
    sent = [2 * problem.count - sizes[(r + 1) % n] - sizes[(r + 2) % n] for r in range(n)]
    item = problem.item_bytes
    return Cost(
        sent_bytes=max(sent) * item, messages=2 * (n - 1), total_bytes=sum(sent) * item, steps=2 * (n - 1)
    )
