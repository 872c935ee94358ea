"""Ring collectives: every rank talks only to its two neighbours, and every link carries the same bytes.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009, section 3.

Algorithm (n ranks, buffer cut into n chunks):
1. For n − 1 steps send one chunk to the next rank, receive one from the previous, and add it to the own copy.
2. Each rank then holds one chunk of the sum: this is the reduce-scatter.
3. For n − 1 steps pass the finished chunks on around the ring: this is the all-gather.
4. A broadcast passes chunks down the chain behind each other; an all-to-all shifts by 1, 2, … n − 1.

Cost of an all-reduce of S bytes: 2(n−1)/n · S sent by each rank in 2(n−1) messages, 2(n−1) dependent steps; all-gather
and reduce-scatter half of it; broadcast S from each but the last rank of the chain.

Difference from the paper: chunks differ by one element when n does not divide the count.
Limits: latency grows linearly with n.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.problem import Comm, Cost, Problem, chunk_bounds

BROADCAST_CHUNKS = 4


@technique(
    name="ring",
    family="collectives",
    implements=("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"),
    summary="chunks travel around a ring of neighbours",
    properties={"exact": True},
)
class Ring:
    """Ring algorithms over point-to-point messages."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self.next = (problem.rank + 1) % problem.world_size
        self.previous = (problem.rank - 1) % problem.world_size
        self._run = getattr(self, f"_{problem.operation}")

    def run(self, *buffers: Tensor) -> None:
        """Perform the problem's operation."""
        if self.problem.world_size == 1:
            if len(buffers) == 2:
                buffers[1].copy_(buffers[0])
            return
        self._run(*buffers)

    def _all_reduce(self, buffer: Tensor) -> None:
        chunks = _split(buffer, self.problem.world_size)
        self._reduce_chunks(chunks)
        self._gather_chunks(chunks, first=self.problem.rank + 1)

    def _reduce_scatter(self, send: Tensor, receive: Tensor) -> None:
        size, rank, share = self.problem.world_size, self.problem.rank, self.problem.share
        parts = send.view(size, share)
        incoming, outgoing = self.problem.empty(share), self.problem.empty(share)
        for step in range(size - 1):
            index = (rank - step - 1) % size
            source = parts[index] if step == 0 else outgoing
            self.comm.exchange(source, self.next, incoming, self.previous)
            target = receive if step == size - 2 else outgoing
            target.copy_(incoming).add_(parts[(index - 1) % size])

    def _all_gather(self, send: Tensor, receive: Tensor) -> None:
        chunks = list(receive.view(self.problem.world_size, self.problem.share))
        chunks[self.problem.rank].copy_(send)
        self._gather_chunks(chunks, first=self.problem.rank)

    def _all_to_all(self, send: Tensor, receive: Tensor) -> None:
        size, rank = self.problem.world_size, self.problem.rank
        outgoing, incoming = send.view(size, -1), receive.view(size, -1)
        incoming[rank].copy_(outgoing[rank])
        for shift in range(1, size):
            to, source = (rank + shift) % size, (rank - shift) % size
            self.comm.exchange(outgoing[to], to, incoming[source], source)

    def _broadcast(self, buffer: Tensor) -> None:
        position = (self.problem.rank - self.problem.root) % self.problem.world_size
        pending = []
        for chunk in _split(buffer, BROADCAST_CHUNKS):
            if position > 0:
                self.comm.receive(chunk, self.previous)
            if position < self.problem.world_size - 1:
                pending.append(self.comm.start(sends=[(chunk, self.next)]))
        for transfer in pending:
            transfer.wait()

    def _reduce(self, buffer: Tensor) -> None:
        position = (self.problem.rank - self.problem.root) % self.problem.world_size
        pending = []
        for chunk in _split(buffer, BROADCAST_CHUNKS):
            if position < self.problem.world_size - 1:
                incoming = self.problem.empty(chunk.numel())
                self.comm.receive(incoming, self.next)
                chunk.add_(incoming)
            if position > 0:
                pending.append(self.comm.start(sends=[(chunk, self.previous)]))
        for transfer in pending:
            transfer.wait()

    def _reduce_chunks(self, chunks: list[Tensor]) -> None:
        size, rank = self.problem.world_size, self.problem.rank
        incoming = self.problem.empty(chunks[0].numel())
        for step in range(size - 1):
            send, receive = (rank - step) % size, (rank - step - 1) % size
            target = incoming[: chunks[receive].numel()]
            self.comm.exchange(chunks[send], self.next, target, self.previous)
            chunks[receive].add_(target)

    def _gather_chunks(self, chunks: list[Tensor], first: int) -> None:
        size = self.problem.world_size
        for step in range(size - 1):
            send, receive = (first - step) % size, (first - step - 1) % size
            self.comm.exchange(chunks[send], self.next, chunks[receive], self.previous)


def _split(buffer: Tensor, num_chunks: int) -> list[Tensor]:
    return [buffer[start:stop] for start, stop in chunk_bounds(buffer.numel(), num_chunks)]


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header, exact for counts that n does not divide."""
    n, item = problem.world_size, problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    if problem.operation == "all_reduce":
        sizes = [stop - start for start, stop in chunk_bounds(problem.count, n)]
        sent = [2 * problem.count - sizes[(r + 1) % n] - sizes[(r + 2) % n] for r in range(n)]
        live = [
            sum(1 for s in range(n - 1) if sizes[(r - s) % n])
            + sum(1 for s in range(n - 1) if sizes[(r + 1 - s) % n])
            for r in range(n)
        ]
        return Cost(
            sent_bytes=max(sent) * item,
            messages=max(live),
            total_bytes=sum(sent) * item,
            steps=2 * (n - 1),
        )
    if problem.operation in ("broadcast", "reduce"):
        chunks = sum(1 for start, stop in chunk_bounds(problem.count, BROADCAST_CHUNKS) if stop > start)
        size = problem.count * item
        return Cost(sent_bytes=size, messages=chunks, total_bytes=size * (n - 1), steps=n - 2 + chunks)
    size = problem.share * item * (n - 1)
    return Cost(sent_bytes=size, messages=n - 1, total_bytes=size * n, steps=n - 1)
