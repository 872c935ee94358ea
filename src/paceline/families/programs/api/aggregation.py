"""A program that averages the updates of clients on one host: through shared memory, sockets, or a broker.

``python -m paceline.families.programs.api.aggregation WAY UPDATES NUMBERS`` starts clients, aggregators and, where
asked for, a broker as processes of its own, waits for all, and prints the mean's sum and its first five numbers.

Clients produce UPDATES vectors of NUMBERS float32 in turn. Two aggregators each add up what comes, as it comes, in
memory that they share with the first process, which adds both sums and divides. The ways differ in how an update gets
from a client to an aggregator:

``shared-memory``   it is made in a shared segment, whose number alone is sent; the aggregator adds from there
``sockets``         it is sent through a socket, and received into the aggregator's own memory
``broker``          it is sent to a broker, which keeps it until the aggregator asks for the next one
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

WAYS = ("shared-memory", "sockets", "broker")
CLIENTS, AGGREGATORS = 4, 2
SLOTS = 2
"""Segments of a client: one is filled while the other is added up."""
NUMBER = struct.Struct("<i")
DONE = -1
Vector = npt.NDArray[np.float32]


def update(number: int, into: Vector) -> None:
    """Make an update: its number, and the place of each element modulo five."""
    into[:] = number
    for place in range(5):
        into[place::5] += place


def expected(updates: int, numbers: int) -> str:
    """Return what is printed, by closed form: element i of the mean is (updates − 1)/2 + i mod 5."""
    mean = (updates - 1) / 2
    sums = [mean * numbers + sum(i * len(range(i, numbers, 5)) for i in range(5))]
    return " ".join(f"{value:.1f}" for value in (*sums, *(mean + i for i in range(min(5, numbers)))))


def command(way: str, updates: int, numbers: int) -> tuple[str, ...]:
    """Return how this program is started, with the interpreter that runs now."""
    module = "paceline.families.programs.api.aggregation"
    return (sys.executable, "-m", module, way, str(updates), str(numbers))


def shared(numbers: int) -> Vector:
    """Return a vector that processes forked from now on share."""
    return np.frombuffer(mmap.mmap(-1, 4 * numbers), dtype=np.float32)


def forked(act: Callable[[], None]) -> int:
    """Let a child do something and end; return its process number."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return pid


def receive(source: socket.socket, into: memoryview) -> None:
    """Fill a buffer from a socket.

    Raises:
        EOFError: The other side has closed.
    """
    while into:
        count = source.recv_into(into)
        if not count:
            raise EOFError("a process ended before it was done")
        into = into[count:]


def told(source: socket.socket) -> int:
    """Return the number that comes next."""
    raw = bytearray(NUMBER.size)
    receive(source, memoryview(raw))
    found: int = NUMBER.unpack(raw)[0]
    return found


def tell(target: socket.socket, number: int) -> None:
    """Send a number."""
    target.sendall(NUMBER.pack(number))


def mine(updates: int, client: int) -> range:
    """Return the numbers of a client's updates."""
    return range(client, updates, CLIENTS)


# Shared memory: numbers of filled slots go one way, numbers of free ones back.


def fill_slots(link: socket.socket, slots: list[Vector], numbers: range) -> None:
    """Be a client: make every update in a slot that is free."""
    free = deque(range(len(slots)))
    for number in numbers:
        if not free:
            free.append(told(link))
        slot = free.popleft()
        update(number, slots[slot])
        tell(link, slot)
    tell(link, DONE)


def add_slots(links: list[socket.socket], slots: list[list[Vector]], total: Vector) -> None:
    """Be an aggregator: add what clients have filled, whoever is first."""
    waiting = dict(zip(links, slots, strict=True))
    while waiting:
        for link in select.select(list(waiting), [], [])[0]:
            slot = told(link)
            if slot == DONE:
                del waiting[link]
                continue
            np.add(total, waiting[link][slot], out=total)
            try:
                tell(link, slot)
            except BrokenPipeError:  # its client has made its last update, and needs no slot
                continue


def through_shared_memory(updates: int, totals: list[Vector]) -> list[int]:
    """Start clients and aggregators; return their processes."""
    numbers = len(totals[0])
    slots = [[shared(numbers) for _ in range(SLOTS)] for _ in range(CLIENTS)]
    links = [socket.socketpair() for _ in range(CLIENTS)]
    pids = [forked(partial(fill_slots, links[c][0], slots[c], mine(updates, c))) for c in range(CLIENTS)]
    for a in range(AGGREGATORS):
        own = range(a, CLIENTS, AGGREGATORS)
        ends, theirs = [links[c][1] for c in own], [slots[c] for c in own]
        pids.append(forked(partial(add_slots, ends, theirs, totals[a])))
    return pids


# Sockets: updates themselves travel.


def send_updates(link: socket.socket, numbers: range, count: int) -> None:
    """Be a client: make every update, and send it."""
    made = np.empty(count, dtype=np.float32)
    for number in numbers:
        update(number, made)
        link.sendall(made.data.cast("B"))


def add_received(links: list[socket.socket], counts: list[int], total: Vector) -> None:
    """Be an aggregator: receive and add updates, from whoever has one."""
    came = np.empty_like(total)
    left = dict(zip(links, counts, strict=True))
    while any(left.values()):
        for link in select.select([k for k, count in left.items() if count], [], [])[0]:
            receive(link, came.data.cast("B"))
            np.add(total, came, out=total)
            left[link] -= 1


def through_sockets(updates: int, totals: list[Vector]) -> list[int]:
    """Start clients and aggregators; return their processes."""
    links = [connected() for _ in range(CLIENTS)]
    pids = [
        forked(partial(send_updates, links[c][0], mine(updates, c), len(totals[0]))) for c in range(CLIENTS)
    ]
    for a in range(AGGREGATORS):
        own = range(a, CLIENTS, AGGREGATORS)
        ends, counts = [links[c][1] for c in own], [len(mine(updates, c)) for c in own]
        pids.append(forked(partial(add_received, ends, counts, totals[a])))
    return pids


# A broker: it keeps what clients send until an aggregator asks for it.


def keep_and_forward(clients: list[socket.socket], aggregators: list[socket.socket], size: int) -> None:
    """Be a broker: every update goes to whichever aggregator asks first.

    Args:
        clients: Where updates come from; each says how many.
        aggregators: Each asks with a number, and gets 1 and an update, or ``DONE``.
        size: Bytes of an update.
    """
    left = {link: told(link) for link in clients}
    total, forwarded = sum(left.values()), 0
    kept: deque[bytes] = deque()
    asking: deque[socket.socket] = deque()
    while forwarded < total:
        sources = [link for link, count in left.items() if count]
        quiet = [link for link in aggregators if link not in asking]
        for link in select.select([*sources, *quiet], [], [])[0]:
            if link in left:
                came = bytearray(size)
                receive(link, memoryview(came))
                kept.append(bytes(came))
                left[link] -= 1
            else:
                told(link)
                asking.append(link)
        while asking and kept:
            link = asking.popleft()
            tell(link, 1)
            link.sendall(kept.popleft())
            forwarded += 1
    for link in aggregators:
        if link not in asking:
            told(link)
        tell(link, DONE)


def send_to_broker(link: socket.socket, numbers: range, count: int) -> None:
    """Be a client of a broker: say how many updates there are, and send them."""
    tell(link, len(numbers))
    send_updates(link, numbers, count)


def ask_broker(link: socket.socket, total: Vector) -> None:
    """Be an aggregator behind a broker: ask, receive and add until there are no more."""
    came = np.empty_like(total)
    while True:
        tell(link, 0)
        if told(link) == DONE:
            return
        receive(link, came.data.cast("B"))
        np.add(total, came, out=total)


def through_a_broker(updates: int, totals: list[Vector]) -> list[int]:
    """Start clients, a broker and aggregators; return their processes."""
    up, down = [connected() for _ in range(CLIENTS)], [connected() for _ in range(AGGREGATORS)]
    count = len(totals[0])
    pids = [forked(partial(send_to_broker, up[c][0], mine(updates, c), count)) for c in range(CLIENTS)]
    pids.append(forked(partial(keep_and_forward, [u[1] for u in up], [d[0] for d in down], 4 * count)))
    return pids + [forked(partial(ask_broker, down[a][1], totals[a])) for a in range(AGGREGATORS)]


def connected() -> tuple[socket.socket, socket.socket]:
    """Return two ends of a TCP connection over loopback, as between containers of one host."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    return near, far


def main(argv: list[str]) -> int:
    """Average the updates, and print the mean's sum and its first five numbers."""
    way, updates, numbers = argv[0], int(argv[1]), int(argv[2])
    totals = [shared(numbers) for _ in range(AGGREGATORS)]
    start = {
        "shared-memory": through_shared_memory,
        "sockets": through_sockets,
        "broker": through_a_broker,
    }[way]
    pids = start(updates, totals)
    failed = [pid for pid in pids if os.waitpid(pid, 0)[1] != 0]
    if failed:
        print(f"{len(failed)} of {len(pids)} processes failed", file=sys.stderr)
        return 1
    mean = (totals[0] + totals[1]) / np.float32(updates)
    shown = [float(mean.sum(dtype=np.float64)), *(float(value) for value in mean[:5])]
    print(" ".join(f"{value:.1f}" for value in shown))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
