"""Averages over ranks that training techniques share, built from the collectives family's rings and counted by Comm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import Comm, Transfer, chunk_bounds
from paceline.families.training.api.codecs import decode_floats, encode_floats, float4_bytes, float_bytes
from paceline.families.training.api.rounds import num_rounds


class RingAverage:
    """Averages one vector over all ranks in place: ring reduce-scatter, then ring all-gather.

    Sends 2·(n − 1)/n of the vector in 2·(n − 1) messages, each of which needs the one before. With ``begin`` and
    ``advance`` it goes on in the background: messages travel while the caller computes.

    Args:
        comm: The communicator.
        count: Elements of the vector.
        dtype: Their type.
        device: Where they are.
        members: Ranks over which the average goes, this one among them; default: all.
    """

    def __init__(
        self,
        comm: Comm,
        count: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        members: Sequence[int] | None = None,
    ) -> None:
        self.comm = comm
        self.members = tuple(range(comm.world_size) if members is None else members)
        self.size = len(self.members)
        self.bounds = chunk_bounds(count, self.size)
        largest = max(stop - start for start, stop in self.bounds)
        self.scratch = torch.empty(2 * largest if self.size > 1 else 0, dtype=dtype, device=device)
        self._steps: Iterator[None] | None = None
        self._taken = 0

    def run(self, vector: Tensor) -> None:
        """Average ``vector``, (count,), in place and wait for the result."""
        self.begin(vector)
        self.complete()

    def begin(self, vector: Tensor) -> None:
        """Start the exchange; ``vector`` must stay untouched until ``complete`` has returned."""
        # One exchange at a time: a second ring on the same links would receive the first one's messages.
        assert self._steps is None
        self._steps = self._run(vector)
        self._taken = 0
        next(self._steps, None)

    def advance(self, passed: int, period: int) -> None:
        """Wait for the messages that are due, and start those after them.

        All have the same share of the time, so that none is waited for while their sum fits into it.

        Args:
            passed: Turns of the caller since ``begin``.
            period: Turns after which the average is wanted.
        """
        if self._steps is None:
            return
        # Turn p of P owes ⌊p·messages/P⌋ messages: evenly spread, and all of them at the last turn.
        while self._taken < passed * self.num_messages // period:
            self._taken += 1
            next(self._steps, None)

    def complete(self) -> None:
        """Take all steps that are left."""
        if self._steps is not None:
            rings.finish(self._steps)
            self._steps = None

    @property
    def num_messages(self) -> int:
        """Messages of one average, one after another."""
        return 2 * (self.size - 1)

    def _run(self, vector: Tensor) -> Iterator[None]:
        if self.size == 1:
            return
        members, place = self.members, self.members.index(self.comm.rank)
        chunks = [vector[start:stop] for start, stop in self.bounds]
        yield from rings.reduce_scatter(self.comm, chunks, members, place, self.scratch)
        # Divided between the two halves: each element once, on its owner, so that all ranks receive the same bits.
        chunks[place].div_(self.size)
        yield from rings.all_gather(self.comm, chunks, members, place)


def ring_cost(count: int, world_size: int, item_bytes: int = 4) -> tuple[int, int]:
    """Return the bytes and messages that the busiest rank sends in one ring average.

    Patarasuk and Yuan, 2009: 2·(n − 1)/n of the vector in 2·(n − 1) messages, here with the exact sizes of chunks.

    Args:
        count: Elements of the vector.
        world_size: n.
        item_bytes: Bytes of an element.
    """
    sizes = [stop - start for start, stop in chunk_bounds(count, world_size)]
    sent = [rings.sent(sizes, place) for place in range(world_size)]
    return max(s[0] for s in sent) * item_bytes, max(s[1] for s in sent)


def late_ring_cost(count: int, world_size: int, steps: int, sync_every: int) -> tuple[int, int, int]:
    """Return what the busiest rank sends in a run whose ring averages each travel during the next round.

    Args:
        count: Elements of the vector.
        world_size: n.
        steps: Of the run.
        sync_every: H, steps of a round.

    Returns:
        Bytes of all rounds; bytes of the last step, the most of any: a whole average, and what the one before it has
        left; and messages of all rounds.
    """
    sent, messages = ring_cost(count, world_size)
    rounds = num_rounds(sync_every, steps)
    last = steps - (rounds - 1) * sync_every
    # The first message of an average sets out at once, so after k steps of H there are 1 + k·messages/H under way.
    begun = 1 + (last - 1) * messages // sync_every
    left = max(messages - begun, 0) / max(messages, 1) if rounds > 1 else 0.0
    return rounds * sent, round((1 + left) * sent), rounds * messages


class CodedAverage:
    """Averages a vector over ranks in four bits an element, in two steps that may lie far apart.

    1. Each rank sends every other rank the codes of that rank's chunk; chunks are added up in float32.
    2. Each rank sends the codes of its averaged chunk to all. All ranks decode the same codes, their own included.

    Args:
        comm: The communicator.
        count: Elements of the vector.
        device: Where it is.
        bits: 4, or 32 for values as they are.
    """

    def __init__(self, comm: Comm, count: int, *, device: torch.device, bits: int = 4) -> None:
        self.comm, self.bits = comm, bits
        self.bounds = chunk_bounds(count, comm.world_size)
        sizes = [float_bytes(stop - start, bits) for start, stop in self.bounds]
        own = sizes[comm.rank]
        self.outgoing = [torch.empty(s, dtype=torch.uint8, device=device) for s in sizes]
        self.parts = [torch.empty(own, dtype=torch.uint8, device=device) for _ in sizes]
        self._transfer: Transfer | None = None

    def begin(self, vector: Tensor) -> None:
        """Start the first step; ``vector``, (count,) in float32, may change afterwards."""
        for (start, stop), message in zip(self.bounds, self.outgoing, strict=True):
            encode_floats(vector[start:stop], message, self.bits)
        self._transfer = self._start(self.outgoing, self.parts)

    def advance(self) -> None:
        """Wait for the first step and start the second."""
        self._wait()
        rank = self.comm.rank
        start, stop = self.bounds[rank]
        # The own chunk goes through its code, too: the sum treats all ranks alike.
        self.parts[rank].copy_(self.outgoing[rank])
        total = torch.zeros(stop - start, dtype=torch.float32, device=self.parts[rank].device)
        for message in self.parts:
            total.add_(decode_floats(message, stop - start, self.bits))
        own = self.outgoing[rank]
        encode_floats(total.div_(self.comm.world_size), own, self.bits)
        # outgoing[peer] has left and has the size of peer's coded chunk, so it can receive that chunk's average.
        self._transfer = self._start([own] * self.comm.world_size, self.outgoing)

    def complete(self, vector: Tensor) -> None:
        """Wait for the second step and write the average into ``vector``, (count,); the same bits on all ranks."""
        self._wait()
        for (start, stop), message in zip(self.bounds, self.outgoing, strict=True):
            vector[start:stop].copy_(decode_floats(message, stop - start, self.bits))

    def _start(self, outgoing: Sequence[Tensor], incoming: Sequence[Tensor]) -> Transfer:
        rank, size = self.comm.rank, self.comm.world_size
        others = [(rank + shift) % size for shift in range(1, size)]
        return self.comm.start(
            sends=[(outgoing[peer], peer) for peer in others],
            receives=[(incoming[peer], peer) for peer in others],
        )

    def _wait(self) -> None:
        assert self._transfer is not None
        self._transfer.wait()
        self._transfer = None


def coded_cost(count: int, world_size: int) -> list[tuple[int, int]]:
    """Return the bytes that each rank sends in the two steps of a coded average."""
    sizes = [float4_bytes(stop - start) for start, stop in chunk_bounds(count, world_size)]
    # First step: the codes of all foreign chunks. Second: the own average, to every other rank.
    return [(sum(sizes) - own, (world_size - 1) * own) for own in sizes]
