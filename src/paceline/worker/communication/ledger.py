"""What a carrier that runs operations in the order of their start would do with what ranks have started: pure.

NCCL, RCCL and HCCL run the operations of a communicator one after the other on each rank. A batch of sends and receives
counts as one operation. A send ends only once its receive runs (rendezvous), and a collective only once all ranks run
it. So each rank has one operation at its head, and what was started behind it waits. Ranks whose heads wait for one
another in a circle wait forever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

RENDEZVOUS = "a send ends only when its receive runs"
SAME_ORDER = "all ranks run a communicator's operations in one order"
FIRST_BY_ALL = "the first operation of a communicator is made by all of its ranks"
EQUAL_SIZES = "a receive has its send's size"

Part = tuple[int, int]
"""The other rank, and bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A batch of messages, or a collective, as one rank has started it."""

    collective: str = ""
    """Its name and sizes, equal on all ranks; nothing for a batch of messages."""
    sends: tuple[Part, ...] = ()
    receives: tuple[Part, ...] = ()

    def text(self) -> str:
        """Describe it for people."""
        if self.collective:
            return self.collective
        parts = [f"send of {size} bytes to rank {peer}" for peer, size in self.sends]
        parts += [f"receive of {size} bytes from rank {peer}" for peer, size in self.receives]
        return (
            " with ".join(parts)
            if len(parts) < 4
            else f"{' with '.join(parts[:3])} and {len(parts) - 3} more"
        )


@dataclass(slots=True)
class _Head:
    """The operation that a rank runs, and what of it is not matched yet."""

    number: int
    operation: Operation
    sends: list[Part] = field(init=False)
    receives: list[Part] = field(init=False)

    def __post_init__(self) -> None:
        self.sends, self.receives = list(self.operation.sends), list(self.operation.receives)

    def peers(self) -> Iterator[int]:
        yield from (peer for peer, _ in self.sends)
        yield from (peer for peer, _ in self.receives)

    def done(self) -> bool:
        return not (self.operation.collective or self.sends or self.receives)

    def text(self) -> str:
        return f"operation {self.number + 1} ({self.operation.text()})"


class Ledger:
    """The operations of one communicator, by rank, run as far as their order allows."""

    def __init__(self, world_size: int) -> None:
        self._waiting: list[deque[Operation]] = [deque() for _ in range(world_size)]
        self._heads: list[_Head | None] = [None] * world_size
        self._begun = [0] * world_size
        self.finished = [0] * world_size
        """By rank, how many of its operations have ended."""
        self.breach: str | None = None
        """What keeps ranks from ever ending, with ranks, operations and the rule; None where nothing does."""

    def add(self, rank: int, operations: Sequence[Operation]) -> None:
        """Take note of what a rank has started."""
        self._waiting[rank].extend(operations)

    def settle(self) -> None:
        """Run what can be run; then look for ranks that wait for each other forever."""
        progress = True
        while progress and self.breach is None:
            self._pull()
            progress = self._match() | self._meet()
        if self.breach is None:
            self._look_for_circle()

    def _pull(self) -> None:
        for rank, waiting in enumerate(self._waiting):
            if self._heads[rank] is None and waiting:
                self._heads[rank] = _Head(self._begun[rank], waiting.popleft())
                self._begun[rank] += 1

    def _end(self, rank: int) -> None:
        self._heads[rank] = None
        self.finished[rank] += 1

    def _match(self) -> bool:
        """Match the messages of heads; return whether one has ended."""
        for rank, head in enumerate(self._heads):
            for part in list(head.sends) if head else ():
                peer, size = part
                other = self._heads[peer]
                fitting = next((p for p in other.receives if p[0] == rank), None) if other else None
                if head is None or other is None or fitting is None:
                    continue
                if fitting[1] != size:
                    said = f"rank {rank}, {head.text()}, meets rank {peer}, {other.text()}"
                    self.breach = f"{said}: {EQUAL_SIZES}"
                    return False
                head.sends.remove(part)
                other.receives.remove(fitting)
        ended = [rank for rank, head in enumerate(self._heads) if head and head.done()]
        for rank in ended:
            self._end(rank)
        return bool(ended)

    def _meet(self) -> bool:
        """End the collective that all ranks run; return whether there was one."""
        heads = [(r, h) for r, h in enumerate(self._heads) if h and h.operation.collective]
        for rank, head in heads[1:]:
            first = heads[0][1]
            if head.operation != first.operation:
                said = f"rank {rank}, {head.text()}, meets rank {heads[0][0]}, {first.text()}"
                self.breach = f"{said}: {SAME_ORDER}"
                return False
        if len(heads) < len(self._heads):
            return False
        for rank, _ in heads:
            self._end(rank)
        return True

    def _awaited(self, rank: int) -> list[int]:
        """Return the ranks whose heads must end before a rank's own can."""
        head = self._heads[rank]
        if head is None:
            return []
        peers = range(len(self._heads)) if head.operation.collective else dict.fromkeys(head.peers())
        # A rank without a head still computes, and may yet start what is waited for.
        others = ((p, self._heads[p]) for p in peers if p != rank)
        if head.operation.collective:
            return [p for p, h in others if h and not h.operation.collective]
        return [p for p, h in others if h]

    def _look_for_circle(self) -> None:
        for start in range(len(self._heads)):
            path = [start]
            left = {start: self._awaited(start)}
            while path:
                if not left[path[-1]]:
                    path.pop()
                    continue
                following = left[path[-1]].pop()
                if following in path:
                    self.breach = self._told(path[path.index(following) :])
                    return
                if following not in left:
                    path.append(following)
                    left[following] = self._awaited(following)

    def _told(self, circle: Sequence[int]) -> str:
        """Say who waits for whom, from the lowest rank on."""
        at = circle.index(min(circle))
        ranks = [*circle[at:], *circle[:at]]
        heads = [self._heads[rank] for rank in ranks]
        waits = [
            f"rank {rank}, {head.text() if head else ''}, waits for rank {other}"
            for rank, head, other in zip(ranks, heads, [*ranks[1:], ranks[0]], strict=True)
        ]
        mixed = any(head and head.operation.collective for head in heads)
        return f"{'; '.join(waits)}: {SAME_ORDER if mixed else RENDEZVOUS}"
