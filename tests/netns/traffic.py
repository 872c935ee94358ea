"""TCP programs for ranks: ``python traffic.py KIND NAMESPACE ...`` prints one JSON line."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import struct
import sys
import threading
import time
from dataclasses import asdict

from paceline.worker.network.links import DATA_INTERFACE, enter, read_counters
from paceline.worker.network.namespace import sent_again_bytes

_PORT = 5201
BYTES_SENT_AGAIN_AT = 208
"""Where ``struct tcp_info`` has ``tcpi_bytes_retrans``, since Linux 4.19."""


def _accept() -> socket.socket:
    with socket.create_server(("", _PORT)) as server:
        print(json.dumps("listening"), flush=True)
        connection, _ = server.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _connect(address: str) -> socket.socket:
    connection = socket.create_connection((address, _PORT))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _receive(connection: socket.socket, size_bytes: int) -> int:
    buffer, received = bytearray(1 << 20), 0
    while received < size_bytes:
        count = connection.recv_into(buffer, min(len(buffer), size_bytes - received))
        if not count:
            break
        received += count
    return received


def pong() -> None:
    """Echo single bytes until the other side hangs up."""
    with _accept() as connection:
        while byte := connection.recv(1):
            connection.send(byte)


def ping(address: str, repeats: str) -> dict[str, float]:
    """Time round trips of one byte, in milliseconds."""
    times_ms = []
    with _connect(address) as connection:
        for _ in range(int(repeats)):
            start_s = time.perf_counter()
            connection.send(b"x")
            connection.recv(1)
            times_ms.append((time.perf_counter() - start_s) * 1e3)
    times_ms = sorted(times_ms[3:])
    return {
        "min": times_ms[0],
        "median": statistics.median(times_ms),
        "p90": times_ms[int(0.9 * len(times_ms))],
        "max": times_ms[-1],
    }


def sink() -> None:
    """Swallow messages of an announced size and acknowledge each with one byte."""
    with _accept() as connection:
        while header := connection.recv(8, socket.MSG_WAITALL):
            _receive(connection, int.from_bytes(header, "big"))
            connection.send(b"x")


def _sent_again(connection: socket.socket) -> int:
    """Return the bytes that the kernel sent a second time (``tcpi_bytes_retrans`` of linux/tcp.h)."""
    facts = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, BYTES_SENT_AGAIN_AT + 8)
    return int(struct.unpack_from("=Q", facts, BYTES_SENT_AGAIN_AT)[0])


def source(address: str, size_bytes: str, repeats: str) -> dict[str, object]:
    """Send messages and await each acknowledgement; report times, counters and what TCP had to send twice."""
    payload, times_s = bytes(int(size_bytes)), []
    with _connect(address) as connection:
        before = read_counters(DATA_INTERFACE)
        for _ in range(int(repeats)):
            start_s = time.perf_counter()
            connection.send(len(payload).to_bytes(8, "big"))
            connection.sendall(payload)
            connection.recv(1)
            times_s.append(time.perf_counter() - start_s)
        after = asdict(read_counters(DATA_INTERFACE))
        again = _sent_again(connection)
    sent = {name: after[name] - value for name, value in asdict(before).items()}
    return {"times_s": times_s, "sent_again_bytes": again, **sent}


def again() -> int:
    """Report what TCP has sent again in this namespace."""
    return sent_again_bytes()


def unheard(address: str) -> dict[str, int]:
    """Ask for a connection that nobody hears of, until TCP has asked again; report the bytes sent again."""
    before = sent_again_bytes()
    with socket.socket() as connection, contextlib.suppress(TimeoutError):
        connection.settimeout(2.5)  # TCP asks a second time after one second
        connection.connect((address, _PORT + 1))
    return {"before": before, "after": sent_again_bytes()}


def gather(num_senders: str) -> int:
    """Swallow what several ranks send at once, until each hangs up; report the bytes."""
    with socket.create_server(("", _PORT)) as server:
        print(json.dumps("listening"), flush=True)
        connections = [server.accept()[0] for _ in range(int(num_senders))]
    received: list[int] = []
    threads = [
        threading.Thread(target=lambda c=connection: received.append(_receive(c, 1 << 40)))
        for connection in connections
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(received)


def scatter(address: str, size_bytes: str) -> int:
    """Send some bytes; report what the interface sent once they were all acknowledged."""
    before = read_counters(DATA_INTERFACE)
    with _connect(address) as connection:
        connection.sendall(bytes(int(size_bytes)))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    return read_counters(DATA_INTERFACE).tx_bytes - before.tx_bytes


if __name__ == "__main__":
    enter(sys.argv[2])
    programs = (ping, pong, sink, source, gather, scatter, again, unheard)
    program = {program.__name__: program for program in programs}[sys.argv[1]]
    result = program(*sys.argv[3:])
    if result is not None:
        print(json.dumps(result))
