"""Recursive doubling: partners at distance 1, 2, 4, … exchange whole buffers, so few steps carry much data.

Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", IJHPCA 19(1), 2005,
sections 4.1 (Bruck's all-gather) and 4.5 (all-reduce).

Algorithm of the all-reduce (n ranks, p the largest power of two ≤ n):
1. Each of the n − p ranks beyond p sends its buffer to the rank p below, which adds it and stands for both.
2. In step k the p remaining ranks exchange their sums with the rank whose number differs in bit k, and add.
3. The results go back to the ranks beyond p.
The all-gather is Bruck's: in step k a rank sends what it has, 2^k shares, to the rank 2^k below; any n, no folding.

Cost of an all-reduce of S bytes: log₂p · S from each of the p ranks (and S more where a rank is represented), in
log₂p + 2 dependent steps; of an all-gather: (n−1)/n · S from each rank in ⌈log₂n⌉ steps.

Difference from the paper: none. Sums are commutative pair by pair, so all ranks end with the same bits.
Limits: bandwidth grows with log n, so long buffers belong to the ring.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.problem import Comm, Cost, Problem


@technique(
    name="recursive-doubling",
    family="collectives",
    implements=("all_reduce", "all_gather"),
    summary="partners at doubling distances exchange all they have",
    properties={"exact": True},
)
class RecursiveDoubling:
    """All-reduce and all-gather in a logarithmic number of steps."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        count = problem.count
        self.incoming = problem.empty(count)
        self.rotated = problem.empty(count if problem.operation == "all_gather" else 0)

    def run(self, *buffers: Tensor) -> None:
        """Perform the problem's operation."""
        if self.problem.operation == "all_reduce":
            self._all_reduce(*buffers)
        else:
            self._all_gather(*buffers)

    def _all_reduce(self, buffer: Tensor) -> None:
        rank, size = self.problem.rank, self.problem.world_size
        core = _core(size)
        if rank >= core:
            self.comm.send(buffer, rank - core)
            self.comm.receive(buffer, rank - core)
            return
        represented = rank + core < size
        if represented:
            self.comm.receive(self.incoming, rank + core)
            buffer.add_(self.incoming)
        distance = 1
        while distance < core:
            partner = rank ^ distance
            self.comm.exchange(buffer, partner, self.incoming, partner)
            buffer.add_(self.incoming)
            distance *= 2
        if represented:
            self.comm.send(buffer, rank + core)

    def _all_gather(self, send: Tensor, receive: Tensor) -> None:
        rank, size, share = self.problem.rank, self.problem.world_size, self.problem.share
        rotated = self.rotated.view(size, share)  # row i holds the share of rank + i
        rotated[0].copy_(send)
        have = 1
        while have < size:
            more = min(have, size - have)
            below, above = (rank - have) % size, (rank + have) % size
            self.comm.exchange(
                rotated[:more].reshape(-1), below, rotated[have : have + more].reshape(-1), above
            )
            have += more
        target = receive.view(size, share)
        target[rank:].copy_(rotated[: size - rank])
        target[:rank].copy_(rotated[size - rank :])


def _core(size: int) -> int:
    """Return the largest power of two that is at most ``size``."""
    return 1 << (size.bit_length() - 1)


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    n, item = problem.world_size, problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    if problem.operation == "all_gather":
        steps = (n - 1).bit_length()
        sent = (n - 1) * problem.share * item
        return Cost(sent_bytes=sent, messages=steps, total_bytes=sent * n, steps=steps)
    core = _core(n)
    doublings, extra, size = core.bit_length() - 1, n - core, problem.count * item
    folded = 1 if extra else 0
    return Cost(
        sent_bytes=(doublings + folded) * size,
        messages=doublings + folded,
        total_bytes=(core * doublings + 2 * extra) * size,
        steps=doublings + 2 * folded,
    )
