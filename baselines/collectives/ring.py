"""Ring collectives: every rank talks only to its two neighbours, and every link carries the same bytes.

Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009, section 3.

Algorithm (n ranks, buffer cut into n chunks):
1. For n − 1 steps send one chunk to the next rank, receive one from the previous, and add it to the own copy.
2. Each rank then holds one chunk of the sum: this is the reduce-scatter.
3. For n − 1 steps pass the finished chunks on around the ring: this is the all-gather.
4. A broadcast passes chunks down the chain behind each other; an all-to-all shifts by 1, 2, … n − 1.
Receives are posted a step ahead, so that no step waits for the receiver to announce itself.

Cost of an all-reduce of S bytes: 2(n−1)/n · S sent by each rank in 2(n−1) messages, 2(n−1) dependent steps; all-gather
and reduce-scatter half of it; broadcast S from each but the last rank of the chain.

Difference from the paper: chunks differ by one element when n does not divide the count.
Limits: latency grows linearly with n.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem, chunk_bounds
from paceline.families.collectives.api.rings import all_gather, finish, reduce_scatter, sent

# The chain takes n − 2 + chunks steps of S/chunks each: more chunks hide more hops, and pay more latencies.
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
        self.members = list(range(problem.world_size))
        # Two landing places: the next receive stands open while the chunk that came before is still being added.
        self.scratch = problem.empty(2 * -(-problem.count // problem.world_size))
        needs_sums = problem.operation in ("reduce_scatter", "reduce")
        # A reduce-scatter must not add into its input; a reduction needs a landing place
        # beside the buffer that it adds to.
        self.sums = problem.empty(problem.count if needs_sums else 0)
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
        finish(reduce_scatter(self.comm, chunks, self.members, self.problem.rank, self.scratch))
        finish(all_gather(self.comm, chunks, self.members, self.problem.rank))

    def _reduce_scatter(self, send: Tensor, receive: Tensor) -> None:
        size, rank, share = self.problem.world_size, self.problem.rank, self.problem.share
        self.sums.copy_(send)  # the input must not change
        rows = list(self.sums.view(size, share))
        finish(reduce_scatter(self.comm, rows, self.members, rank, self.scratch))
        receive.copy_(rows[rank])

    def _all_gather(self, send: Tensor, receive: Tensor) -> None:
        chunks = list(receive.view(self.problem.world_size, self.problem.share))
        chunks[self.problem.rank].copy_(send)
        finish(all_gather(self.comm, chunks, self.members, self.problem.rank))

    def _all_to_all(self, send: Tensor, receive: Tensor) -> None:
        size, rank = self.problem.world_size, self.problem.rank
        outgoing, incoming = send.view(size, -1), receive.view(size, -1)
        incoming[rank].copy_(outgoing[rank])
        shifts = range(1, size)
        # All receives are posted before the first send, where that is possible: no send waits
        # for its receiver to announce itself.
        ahead = self.comm.posts_ahead
        sources = [(rank - shift) % size for shift in shifts]
        arrivals = [self.comm.start(receives=[(incoming[s], s)]) for s in sources] if ahead else []
        # Each shift is a permutation of the ranks: everybody sends one message and
        # receives one, so no receiver is swamped.
        for shift in shifts:
            to, source = (rank + shift) % size, (rank - shift) % size
            if ahead:
                self.comm.send(outgoing[to], to)
                arrivals[shift - 1].wait()
            else:
                # Together: where a send ends only with its receive, ranks that all send first wait forever.
                self.comm.exchange(outgoing[to], to, incoming[source], source)

    def _broadcast(self, buffer: Tensor) -> None:
        size = self.problem.world_size
        position = (self.problem.rank - self.problem.root) % size
        chunks = _split(buffer, BROADCAST_CHUNKS)
        after, before = (self.problem.rank + 1) % size, (self.problem.rank - 1) % size
        arrivals = [self.comm.start(receives=[(c, before)]) for c in chunks] if position > 0 else []
        pending = []
        for index, chunk in enumerate(chunks):
            if position > 0:
                arrivals[index].wait()
            if position < size - 1:
                # Not waited for yet: this chunk travels on while the next one arrives.
                pending.append(self.comm.start(sends=[(chunk, after)]))
        for transfer in pending:
            transfer.wait()

    def _reduce(self, buffer: Tensor) -> None:
        size = self.problem.world_size
        position = (self.problem.rank - self.problem.root) % size
        chunks, landing = _split(buffer, BROADCAST_CHUNKS), _split(self.sums, BROADCAST_CHUNKS)
        after, before = (self.problem.rank + 1) % size, (self.problem.rank - 1) % size
        last = position == size - 1
        arrivals = [self.comm.start(receives=[(c, after)]) for c in landing] if not last else []
        pending = []
        for index, chunk in enumerate(chunks):
            if not last:
                arrivals[index].wait()
                # The chain ends at the root, so the order of additions is fixed. Other ranks'
                # buffers are left with partial sums.
                chunk.add_(landing[index])
            if position > 0:
                pending.append(self.comm.start(sends=[(chunk, before)]))
        for transfer in pending:
            transfer.wait()


def _split(buffer: Tensor, num_chunks: int) -> list[Tensor]:
    return [buffer[start:stop] for start, stop in chunk_bounds(buffer.numel(), num_chunks)]


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header, exact for counts that n does not divide."""
    n, item = problem.world_size, problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    if problem.operation == "all_reduce":
        # Chunks differ by one element where n does not divide the count, so the busiest rank is searched for.
        sizes = [stop - start for start, stop in chunk_bounds(problem.count, n)]
        leaving = [sent(sizes, place) for place in range(n)]
        return Cost(
            sent_bytes=max(elements for elements, _ in leaving) * item,
            messages=max(messages for _, messages in leaving),
            total_bytes=sum(elements for elements, _ in leaving) * item,
            steps=2 * (n - 1),
        )
    if problem.operation in ("broadcast", "reduce"):
        chunks = sum(1 for start, stop in chunk_bounds(problem.count, BROADCAST_CHUNKS) if stop > start)
        size = problem.count * item
        return Cost(sent_bytes=size, messages=chunks, total_bytes=size * (n - 1), steps=n - 2 + chunks)
    size = problem.share * item * (n - 1)
    return Cost(sent_bytes=size, messages=n - 1, total_bytes=size * n, steps=n - 1)
