"""Averages over ranks that training techniques share, built from the collectives family's rings and counted by Comm."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from paceline.families.collectives import rings
from paceline.families.collectives.problem import Comm, chunk_bounds


class RingAverage:
    """Averages one vector over all ranks in place: ring reduce-scatter, then ring all-gather.

    Sends 2·(n − 1)/n of the vector in 2·(n − 1) messages. With ``begin`` and ``advance`` it goes on in the background:
    each step's messages travel while the caller computes, and ``advance`` takes the steps that are due.

    Args:
        comm: The communicator.
        count: Elements of the vector.
        dtype: Their type.
        device: Where they are.
    """

    def __init__(self, comm: Comm, count: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self.comm = comm
        self.size = comm.world_size
        self.bounds = chunk_bounds(count, self.size)
        largest = max(stop - start for start, stop in self.bounds)
        self.scratch = torch.empty(2 * largest if self.size > 1 else 0, dtype=dtype, device=device)
        self._steps: Iterator[None] | None = None

    def run(self, vector: Tensor) -> None:
        """Average ``vector`` and wait for the result."""
        self.begin(vector)
        self.complete()

    def begin(self, vector: Tensor) -> None:
        """Start the exchange; ``vector`` must stay untouched until ``complete`` has returned."""
        assert self._steps is None
        self._steps = self._run(vector)
        next(self._steps, None)

    def advance(self) -> None:
        """Take the next step: wait for its messages, which have travelled meanwhile, and start the next ones."""
        if self._steps is not None:
            next(self._steps, None)

    def complete(self) -> None:
        """Take all steps that are left."""
        if self._steps is not None:
            rings.finish(self._steps)
            self._steps = None

    @property
    def num_steps(self) -> int:
        """Dependent messages of one average."""
        return 2 * (self.size - 1)

    def _run(self, vector: Tensor) -> Iterator[None]:
        if self.size == 1:
            return
        members, place = range(self.size), self.comm.rank
        chunks = [vector[start:stop] for start, stop in self.bounds]
        yield from rings.reduce_scatter(self.comm, chunks, members, place, self.scratch)
        chunks[place].div_(self.size)
        yield from rings.all_gather(self.comm, chunks, members, place)


def ring_cost(count: int, world_size: int, item_bytes: int = 4) -> tuple[int, int]:
    """Return the bytes and messages that the busiest rank sends in one ring average."""
    sizes = [stop - start for start, stop in chunk_bounds(count, world_size)]
    sent = [rings.sent(sizes, place) for place in range(world_size)]
    return max(s[0] for s in sent) * item_bytes, max(s[1] for s in sent)
