"""Ring building blocks that several techniques share: over any members, on chunks of any sizes.

Each is a generator that yields once a step, after it has started the step's messages and before it waits for them, so
that a technique can compute meanwhile; ``finish`` runs one to its end. Bytes: every chunk but one leaves each rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from paceline.families.collectives.problem import Comm


def reduce_scatter(
    comm: Comm, chunks: Sequence[Tensor], members: Sequence[int], place: int, scratch: Tensor
) -> Iterator[None]:
    """Leave the members' sum of chunk ``place`` in it; the other chunks hold partial sums afterwards.

    Args:
        comm: The communicator.
        chunks: One contiguous tensor for each member, in the order of members, flat.
        members: Ranks of the ring, in its order.
        place: This rank's index in ``members``.
        scratch: At least as many elements as the largest chunk.
    """
    size = len(members)
    for step in range(size - 1):
        outgoing, incoming = chunks[(place - step - 1) % size], chunks[(place - step - 2) % size]
        landed = scratch[: incoming.numel()]
        transfer = comm.start(
            sends=[(outgoing, members[(place + 1) % size])], receives=[(landed, members[place - 1])]
        )
        yield
        transfer.wait()
        incoming.add_(landed)


def all_gather(comm: Comm, chunks: Sequence[Tensor], members: Sequence[int], place: int) -> Iterator[None]:
    """Give every member every chunk; member i starts with chunk i. Arguments as in ``reduce_scatter``."""
    size = len(members)
    for step in range(size - 1):
        outgoing, incoming = chunks[(place - step) % size], chunks[(place - step - 1) % size]
        transfer = comm.start(
            sends=[(outgoing, members[(place + 1) % size])], receives=[(incoming, members[place - 1])]
        )
        yield
        transfer.wait()


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
