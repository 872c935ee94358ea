"""Hold every packet of one netfilter queue for a fixed time, then accept it.

The kernel of a benchmark machine may lack ``netem``. A rule ``-j NFQUEUE --queue-num N`` hands
each packet of an interface to this program instead, which releases it a delay later, in order.
Only metadata is copied: the payload stays in the kernel, so that a 64 KiB super-packet costs as
little as an acknowledgement, and one batch verdict releases all packets that are due.

Run as ``python -m paceline.worker.network.delay --queue 0 --delay-ms 5``. It prints ``ready`` once its
queue is bound, then answers one line for each line on standard input: ``delay-ms 2.5`` changes
the delay, ``stats`` reports counts, ``stop`` releases what is held and exits. End of file exits
at once. ``--probe`` binds the queue and exits.

It imports nothing of Paceline and little of the standard library: links.py starts one per rank
by file path with ``python -I -S``, where each import costs milliseconds per launch.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import sys
import time
from collections import deque

# From linux/netlink.h, linux/netfilter/nfnetlink.h and nfnetlink_queue.h.
_NETLINK_NETFILTER = 12
_SO_RCVBUFFORCE = 33
_NLMSG_ERROR = 2
_NLM_F_REQUEST, _NLM_F_ACK = 1, 4
_SUBSYSTEM_QUEUE = 3 << 8
_MESSAGE_PACKET, _MESSAGE_CONFIG, _MESSAGE_VERDICT_BATCH = (_SUBSYSTEM_QUEUE | n for n in (0, 2, 3))
_CONFIG_COMMAND, _CONFIG_PARAMETERS, _CONFIG_MAX_LENGTH, _CONFIG_MASK, _CONFIG_FLAGS = range(1, 6)
_COMMAND_BIND, _COPY_METADATA, _FLAG_GSO = 1, 1, 1 << 2
_VERDICT_HEADER, _VERDICT_ACCEPT = 2, 1

# Kernel 6.18 holds no more than this per queue, whatever is asked for.
_MAX_QUEUE_PACKETS = 65536
_RECEIVE_BUFFER_BYTES = 64 << 20
_MAX_PACKETS_PER_READ = 64
_NICENESS = -10

_HEADER = struct.Struct("=IHHIIBBH")  # length, type, flags, sequence, port; family, version, queue
_TYPE_OFFSET, _ERROR_OFFSET, _PACKET_ID_OFFSET = 4, 16, 24
_TYPE = struct.Struct("=H")
_UNSIGNED = struct.Struct(">I")


def _message(kind: int, queue: int, attributes: bytes, *, acknowledge: bool) -> bytes:
    flags = _NLM_F_REQUEST | (_NLM_F_ACK if acknowledge else 0)
    length = _HEADER.size + len(attributes)
    return _HEADER.pack(length, kind, flags, 0, 0, 0, 0, socket.htons(queue)) + attributes


def _attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + bytes(-len(payload) % 4)


class Queue:
    """One netfilter queue of the caller's network namespace, bound while this object lives."""

    def __init__(self, number: int) -> None:
        """Bind the queue that ``--queue-num number`` feeds.

        Raises:
            OSError: No nfnetlink_queue in the kernel, queue already taken, or not root.
        """
        self.number = number
        self._buffer = bytearray(8192)
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
        self._socket.bind((0, 0))
        flags = _UNSIGNED.pack(_FLAG_GSO)
        self._configure(_attribute(_CONFIG_COMMAND, struct.pack(">BBH", _COMMAND_BIND, 0, 0)))
        self._configure(
            _attribute(_CONFIG_PARAMETERS, struct.pack(">IB", 0, _COPY_METADATA))
            + _attribute(_CONFIG_MAX_LENGTH, _UNSIGNED.pack(_MAX_QUEUE_PACKETS))
            + _attribute(_CONFIG_FLAGS, flags)
            + _attribute(_CONFIG_MASK, flags)
        )
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when packets wait."""
        return self._socket.fileno()

    def _configure(self, attributes: bytes) -> None:
        self._socket.send(_message(_MESSAGE_CONFIG, self.number, attributes, acknowledge=True))
        answer = b""
        while not answer or _TYPE.unpack_from(answer, _TYPE_OFFSET)[0] != _NLMSG_ERROR:
            answer = self._socket.recv(8192)  # packets may come before the acknowledgement
        code = struct.unpack_from("=i", answer, _ERROR_OFFSET)[0]
        if code:
            raise OSError(-code, os.strerror(-code))

    def read(self) -> tuple[int, int]:
        """Take the waiting packets, at most a small number of them.

        Returns:
            How many there were, and the identifier of the last one (0 with none).
        """
        buffer, receive = self._buffer, self._socket.recv_into
        num_packets = last_id = 0
        for _ in range(_MAX_PACKETS_PER_READ):
            try:
                receive(buffer)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                continue  # the kernel dropped packets, which num_lost counts
            if _TYPE.unpack_from(buffer, _TYPE_OFFSET)[0] == _MESSAGE_PACKET:
                last_id = _UNSIGNED.unpack_from(buffer, _PACKET_ID_OFFSET)[0]
                num_packets += 1
        return num_packets, last_id

    def accept_through(self, packet_id: int) -> None:
        """Accept every held packet up to and including this one."""
        header = _attribute(_VERDICT_HEADER, struct.pack(">II", _VERDICT_ACCEPT, packet_id))
        message = _message(_MESSAGE_VERDICT_BATCH, self.number, header, acknowledge=False)
        while True:
            try:
                self._socket.send(message)
                return
            except OSError as error:
                if error.errno not in (errno.ENOBUFS, errno.EAGAIN):
                    raise

    def num_lost(self) -> int:
        """Count the packets that the kernel dropped as this queue was full."""
        with open("/proc/self/net/netfilter/nfnetlink_queue") as queues:  # noqa: PTH123 (start-up)
            for line in queues:
                fields = [int(field) for field in line.split()]
                if fields[0] == self.number:
                    return fields[5] + fields[6]
        return 0


class Delay:
    """Hold the packets of a queue and obey the commands of whoever started the program."""

    def __init__(self, queue: Queue, delay_ns: int, *, commands: int, answers: int) -> None:
        """Prepare to serve.

        Args:
            queue: Where the packets come from.
            delay_ns: How long each is held; a change never lets a packet overtake another.
            commands: Descriptor of the command lines.
            answers: Descriptor for one answer line per command.
        """
        self._queue = queue
        self._delay_ns = delay_ns
        self._commands, self._answers = commands, answers
        self._held: deque[tuple[int, int]] = deque()  # (release time, last identifier), ascending
        self._num_packets = 0

    def run(self) -> None:
        """Serve until a ``stop`` command or the end of the commands."""
        queue, held, unread = self._queue, self._held, b""
        watched = (queue.fileno(), self._commands)
        while True:
            timeout_s = max(0, held[0][0] - time.monotonic_ns()) / 1e9 if held else None
            readable, _, _ = select.select(watched, (), (), timeout_s)
            now_ns = time.monotonic_ns()
            if watched[0] in readable:
                self._take(now_ns)
            due_id = None
            while held and held[0][0] <= now_ns:
                due_id = held.popleft()[1]
            if due_id is not None:
                queue.accept_through(due_id)
            if self._commands in readable:
                chunk = os.read(self._commands, 4096)
                *lines, unread = (unread + chunk).split(b"\n")
                if not chunk or not all(self._obey(line.decode()) for line in lines):
                    return

    def _take(self, now_ns: int) -> int:
        num_new, last_id = self._queue.read()
        if num_new:
            self._num_packets += num_new
            earliest_ns = self._held[-1][0] if self._held else 0
            self._held.append((max(now_ns + self._delay_ns, earliest_ns), last_id))
        return num_new

    def _obey(self, line: str) -> bool:
        word, _, value = line.partition(" ")
        if word == "delay-ms":
            self._delay_ns = round(float(value) * 1e6)
        elif word == "stop":
            while self._take(0):
                pass
            if self._held:
                self._queue.accept_through(self._held[-1][1])
        elif word != "stats":
            raise ValueError(f"unknown command '{word}'; expected delay-ms, stats or stop")
        answer = f"{self._num_packets} packets, {self._queue.num_lost()} lost\n"
        os.write(self._answers, answer.encode())
        return word != "stop"


def _sharpen() -> None:
    """Ask for prompt wake-ups: higher priority, and no timer slack (50 µs by default)."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
        with open("/proc/self/timerslack_ns", "w") as slack:  # noqa: PTH123 (start-up)
            slack.write("1")
    except OSError as error:
        print(f"no prompt wake-ups: {error}", file=sys.stderr)


def main(arguments: list[str]) -> int:
    """Run the program; see the module's docstring for its options."""
    probe = "--probe" in arguments
    words = [word for word in arguments if word != "--probe"]
    options = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or not options.keys() <= {"--queue", "--delay-ms"}:
        print("usage: delay [--queue N] [--delay-ms D] [--probe]", file=sys.stderr)
        return 2
    try:
        queue = Queue(int(options.get("--queue", "0")))
    except OSError as error:
        print(f"cannot bind the netfilter queue: {error}", file=sys.stderr)
        return 3
    if not probe:
        _sharpen()
        os.write(1, b"ready\n")
        delay_ns = round(float(options.get("--delay-ms", "0")) * 1e6)
        Delay(queue, delay_ns, commands=0, answers=1).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
