"""What every rank computed between its messages, and when all would have ended had each a device of its own.

Ranks may be more than cores: a journal holds the processor time between operations of the communicator, whose messages
are counted and not sent. Replayed, a message leaves when its sender started it and the messages before it have left,
and is there after its bytes over the link's rate and the link's delay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor

from paceline.base.counting import number_of
from paceline.worker.communication.comm import Backend, Comm, Transfer
from paceline.worker.communication.transport import Transport
from paceline.worker.ranks.session import ContractBreachError

Message = tuple[Tensor, int]
COMPUTE, START, WAIT = "compute", "start", "wait"
Event = tuple[str, float, list[tuple[int, int]], list[int]]
"""Kind; seconds or the transfer's number; receivers and bytes of what is sent; senders of what is received."""


class _NoBackend:
    """Refuses the backend's own collectives: what happens in them cannot be replayed."""

    def __getattr__(self, name: str) -> Any:
        raise ContractBreachError(
            f"comm.backend.{name}: send messages; the backend's collectives cannot be replayed"
        )


class JournalComm(Comm):
    """A communicator that can note what lies between its operations.

    Args:
        transport: The techniques' carrier.
        clock: Nanoseconds of computation.
        settled: Called before the clock is read, where a device computes by itself.
    """

    def __init__(self, transport: Transport, clock: Callable[[], int], settled: Callable[[], None]) -> None:
        super().__init__(transport)
        self.backend = cast("Backend", _NoBackend())
        self._clock, self._settled = clock, settled
        self._events: list[Event] | None = None
        self._left_ns = self._num_started = 0

    def begin_journal(self) -> None:
        """Note everything from now on; messages move nothing until the journal is taken."""
        self._events, self._num_started, self._muted = [], 0, True
        self._settled()
        self._left_ns = self._clock()

    def take_journal(self) -> list[Event]:
        """Return what was noted, with what was computed behind the last operation."""
        self._enter()
        events, self._events, self._muted = self._events or [], None, False
        return events

    def _enter(self) -> None:
        self._settled()
        if self._events is not None:
            self._events.append((COMPUTE, max(self._clock() - self._left_ns, 0) * 1e-9, [], []))

    def start(self, *, sends: Sequence[Message] = (), receives: Sequence[Message] = ()) -> Transfer:
        """Begin an exchange, as any communicator does."""
        if self._events is None:
            return super().start(sends=sends, receives=receives)
        self._enter()
        super().start(
            sends=sends, receives=receives
        ).wait()  # checked and counted; muted, so nothing is waited for
        sent = [(peer, t.numel() * t.element_size()) for t, peer in sends if t.numel()]
        number = self._num_started
        self._num_started += 1
        self._events.append((START, number, sent, [peer for t, peer in receives if t.numel()]))
        transfer = _Noted(self, number)
        self._pending.add(transfer)
        self._left_ns = self._clock()
        return transfer

    def waited(self, transfer: Transfer, number: int) -> None:
        """Note that a transfer is waited for."""
        self._enter()
        if self._events is not None:
            self._events.append((WAIT, number, [], []))
        self._pending.discard(transfer)
        self._left_ns = self._clock()


class _Noted(Transfer):
    """A transfer of a journal."""

    __slots__ = ("_number",)

    def __init__(self, comm: JournalComm, number: int) -> None:
        super().__init__(comm, [], [])
        self._number = number

    def wait(self) -> None:
        """Note it once."""
        if not self._done:
            self._done = True
            cast("JournalComm", self._comm).waited(self, self._number)


def least(journals: Sequence[Sequence[Event]]) -> list[Event]:
    """Return one journal of several of the same work, each computation at its least.

    Raises:
        ValueError: They are of different work.
    """
    found: list[Event] = []
    for events in zip(*journals, strict=True):
        kind, number, sent, received = events[0]
        if kind == COMPUTE:
            number = min(event[1] for event in events)
        if any((e[0], e[2], e[3]) != (kind, sent, received) for e in events):
            raise ValueError("it communicates otherwise when it does the same again")
        found.append((kind, number, sent, received))
    return found


@dataclass(slots=True)
class _Rank:
    """Where a rank is in its journal."""

    events: Sequence[Event]
    place: int = 0
    now_s: float = 0.0
    out_free_s: float = 0.0
    left_s: dict[int, float] = field(default_factory=dict)
    """Of each transfer, when all that it sends has left."""
    awaited: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Of each transfer, senders and which of their messages."""


def replay(journals: Sequence[Sequence[Event]], *, rate: float, delay: float) -> list[float]:
    """Return when each rank ends.

    Args:
        journals: Of all ranks.
        rate: Bytes per second out of a rank, to all others together.
        delay: Seconds from a message's last byte leaving to its arrival.

    Raises:
        ValueError: Ranks wait for one another, or a message is nobody's.
    """
    ranks = [_Rank(events) for events in journals]
    arrived: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    taken: defaultdict[tuple[int, int], int] = defaultdict(int)
    moved = True
    while moved:
        moved = False
        for number, rank in enumerate(ranks):
            while rank.place < len(rank.events) and _play(
                number, rank, arrived, taken, rate=rate, delay=delay
            ):
                rank.place += 1
                moved = True
    stuck = [n for n, rank in enumerate(ranks) if rank.place < len(rank.events)]
    if stuck:
        raise ValueError(f"ranks {', '.join(map(str, stuck))} wait for messages that nobody sends")
    for (sender, receiver), times in arrived.items():
        if len(times) != taken[sender, receiver]:
            raise ValueError(
                f"rank {sender} sends {number_of(len(times), 'message')} to rank {receiver}, which receives "
                f"{taken[sender, receiver]}"
            )
    return [rank.now_s for rank in ranks]


def _play(
    number: int,
    rank: _Rank,
    arrived: defaultdict[tuple[int, int], list[float]],
    taken: defaultdict[tuple[int, int], int],
    *,
    rate: float,
    delay: float,
) -> bool:
    """Let a rank's next event happen; False while what it waits for is on its way."""
    kind, value, sent, received = rank.events[rank.place]
    if kind == COMPUTE:
        rank.now_s += value
        return True
    transfer = int(value)
    if kind == START:
        for receiver, size in sent:
            rank.out_free_s = max(rank.out_free_s, rank.now_s) + size / rate
            arrived[number, receiver].append(rank.out_free_s + delay)
            rank.left_s[transfer] = rank.out_free_s
        rank.awaited[transfer] = []
        for sender in received:
            rank.awaited[transfer].append((sender, taken[sender, number]))
            taken[sender, number] += 1
        return True
    waits = rank.awaited[transfer]
    if any(place >= len(arrived[sender, number]) for sender, place in waits):
        return False
    ends = [arrived[sender, number][place] for sender, place in waits]
    rank.now_s = max(rank.now_s, rank.left_s.get(transfer, 0.0), *ends)
    return True
