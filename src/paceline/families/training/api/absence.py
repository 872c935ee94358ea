"""A rank that leaves training and comes back: who takes part when, how it is let in, and what that sends.

Ranks leave and come between steps; one that has died takes its process group with it, which is the subject of
``churn``, in this family and in that of collectives.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import Tensor

from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import Comm, chunk_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """One rank is away in some steps."""

    rank: int
    first: int
    """The first step without it."""
    last: int
    """The first step with it again."""

    @classmethod
    def of_last(cls, world_size: int, steps: int) -> Absence:
        """Let the last rank be away from a third of a run to two thirds."""
        return cls(rank=world_size - 1, first=steps // 3, last=2 * steps // 3)

    def changes(self, step: int) -> bool:
        """Tell whether the members change with a step."""
        return step in (self.first, self.last)

    def away(self, rank: int, step: int) -> bool:
        """Tell whether a rank takes no part in a step."""
        return rank == self.rank and self.first <= step < self.last

    def members(self, step: int, world_size: int) -> tuple[int, ...]:
        """Return the ranks that take part in a step."""
        return tuple(rank for rank in range(world_size) if not self.away(rank, step))

    def present(self, rank: int, steps: range) -> int:
        """Return in how many of some steps a rank takes part."""
        return sum(not self.away(rank, step) for step in steps)


def welcome(comm: Comm, before: Sequence[int], members: Sequence[int], state: Sequence[Tensor]) -> None:
    """Give ranks that have come the state of the first of those that were there, in place; call it on all ranks.

    Args:
        comm: The communicator.
        before: Ranks that took part until now.
        members: Ranks that take part from now on.
        state: Contiguous tensors.
    """
    # One source that every rank names without a message: the first member that has the state.
    source = next(rank for rank in members if rank in before)
    for newcomer in members:
        if newcomer in before:
            continue
        # One direction, tensor by tensor: nobody waits for an answer, so blocking calls cannot deadlock.
        for tensor in state:
            if comm.rank == source:
                comm.send(tensor, newcomer)
            elif comm.rank == newcomer:
                comm.receive(tensor, source)


def ring_bytes(
    *,
    world_size: int,
    steps: int,
    exchanges: Collection[int],
    count: int,
    absence: Absence | None,
    welcome_bytes: int = 0,
    welcome_messages: int = 0,
) -> tuple[int, int, int]:
    """Return what the busiest rank sends with ring averages: bytes, most bytes in one step, and messages.

    Args:
        world_size: n.
        steps: Of the run.
        exchanges: Steps with an average over those who take part.
        count: Elements of the vector.
        absence: Who is away when, if anyone.
        welcome_bytes: What a rank that comes back is sent by rank 0.
        welcome_messages: In how many messages.
    """
    found = []
    for rank in range(world_size):
        sent = messages = peak = 0
        for step in range(steps):
            own, several = 0, 0
            # Rank 0 welcomes: the first member that stayed, since it is the last rank that leaves.
            if absence is not None and step == absence.last and rank == 0:
                own, several = welcome_bytes, welcome_messages
            members = absence.members(step, world_size) if absence else tuple(range(world_size))
            if step in exchanges and rank in members:
                sizes = [b - a for a, b in chunk_bounds(count, len(members))]
                elements, parts = rings.sent(sizes, members.index(rank))
                own, several = own + 4 * elements, several + parts
            sent, messages, peak = sent + own, messages + several, max(peak, own)
        found.append((sent, peak, messages))
    return max(f[0] for f in found), max(f[1] for f in found), max(f[2] for f in found)
