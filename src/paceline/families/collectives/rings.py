"""Ring building blocks that several techniques share: over any members, on chunks of any sizes.

Each is a generator that yields once a step, after it has started the step's messages and before it waits for them, so
that a technique can compute meanwhile; ``finish`` runs one to its end. Bytes: every chunk but one leaves each rank.

Receives are posted one step ahead. A carrier may send only once the receiver has announced itself (Gloo does), and on a
link with a delay an announcement that comes late costs a whole delay in every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from paceline.families.collectives.problem import Comm, Transfer


def reduce_scatter(
    comm: Comm, chunks: Sequence[Tensor], members: Sequence[int], place: int, scratch: Tensor
) -> Iterator[None]:
    """Leave the members' sum of chunk ``place`` in it; the other chunks hold partial sums afterwards.

    Args:
        comm: The communicator.
        chunks: One contiguous tensor for each member, in the order of members, flat.
        members: Ranks of the ring, in its order.
        place: This rank's index in ``members``.
        scratch: At least twice as many elements as the largest chunk.
    """
    size = len(members)
    after, before = members[(place + 1) % size], members[place - 1]
    half = scratch.numel() // 2
    halves = (scratch[:half], scratch[half:])

    def expect(step: int) -> tuple[Transfer, Tensor, Tensor]:
        chunk = chunks[(place - step - 2) % size]
        landed = halves[step % 2][: chunk.numel()]
        return comm.start(receives=[(landed, before)]), landed, chunk

    coming = expect(0) if size > 1 else None
    for step in range(size - 1):
        assert coming is not None
        arrival, landed, chunk = coming
        coming = expect(step + 1) if step + 1 < size - 1 else None
        departure = comm.start(sends=[(chunks[(place - step - 1) % size], after)])
        yield
        arrival.wait()
        chunk.add_(landed)
        departure.wait()


def all_gather(comm: Comm, chunks: Sequence[Tensor], members: Sequence[int], place: int) -> Iterator[None]:
    """Give every member every chunk; member i starts with chunk i. Arguments as in ``reduce_scatter``."""
    size = len(members)
    after, before = members[(place + 1) % size], members[place - 1]
    arrivals = [
        comm.start(receives=[(chunks[(place - step - 1) % size], before)]) for step in range(size - 1)
    ]
    for step, arrival in enumerate(arrivals):
        departure = comm.start(sends=[(chunks[(place - step) % size], after)])
        yield
        arrival.wait()
        departure.wait()


def finish(steps: Iterator[None]) -> None:
    """Run a generator of steps to its end without computing in between."""
    for _ in steps:
        pass


def sent(sizes: Sequence[int], place: int) -> tuple[int, int]:
    """Return the elements and messages that a member sends in a reduce-scatter and an all-gather together.

    Args:
        sizes: Elements of each chunk, in the order of members.
        place: The member.
    """
    size = len(sizes)
    leaving = [s for i, s in enumerate(sizes) if i != place]
    leaving += [s for i, s in enumerate(sizes) if i != (place + 1) % size]
    return (sum(leaving), sum(1 for s in leaving if s)) if size > 1 else (0, 0)
