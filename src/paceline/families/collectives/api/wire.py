"""Counted messages over plain TCP, for techniques whose group changes while they run.

``Comm`` rests on a process group of fixed size. Elastic techniques need connections that appear and break, so they get
a ``Wire``: listening, connecting, small JSON messages, tensors, and waiting for whichever connection has something to
say. Payload bytes are counted here, and a lost peer is an exception, never a hang: every wait has a limit.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

_LENGTH = struct.Struct("<Q")
# A length that somebody else's bytes spell must not make this process allocate it.
_MAX_MESSAGE = 1 << 20
_CHUNK = 1 << 20
# Bound at import, before a technique's code runs and could replace them.
_socket = socket.socket
_monotonic = time.monotonic

Address = tuple[str, int]


class PeerLostError(Exception):
    """The other end closed the connection, was killed, or stayed silent beyond the limit."""


class Connection:
    """One TCP connection to another peer or to the master."""

    def __init__(self, wire: Wire, raw: socket.socket) -> None:
        # Without it a small message waits until the one before is acknowledged (Nagle), at every meeting.
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wire = wire
        self._raw = raw
        self.closed = False

    def send(self, message: dict[str, Any]) -> None:
        """Send a small message.

        Raises:
            PeerLostError: The connection is broken.
        """
        data = json.dumps(message, separators=(",", ":")).encode()
        self._send_all(_LENGTH.pack(len(data)) + data)

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Receive a small message.

        Raises:
            PeerLostError: The connection is broken, or nothing came within ``timeout_s``.
        """
        deadline = _monotonic() + timeout_s
        (length,) = _LENGTH.unpack(self._receive_exactly(_LENGTH.size, deadline))
        if length > _MAX_MESSAGE:
            raise PeerLostError(f"a message of {length} bytes is not one of ours")
        message = json.loads(bytes(self._receive_exactly(length, deadline)))
        assert isinstance(message, dict)
        return message

    def send_tensor(self, tensor: Tensor) -> None:
        """Send a contiguous CPU tensor's bytes; the receiver must expect as many.

        Raises:
            PeerLostError: The connection is broken.
            ValueError: The tensor is not contiguous, or not on the CPU.
        """
        view = _bytes_of(tensor)
        self._wire.before_tensor()
        self._wire.sent_bytes += len(view)
        self._send_all(view)

    def receive_tensor(self, tensor: Tensor, timeout_s: float) -> None:
        """Fill a contiguous CPU tensor with the sender's bytes.

        Raises:
            PeerLostError: The connection is broken, or nothing came within ``timeout_s``.
            ValueError: The tensor is not contiguous, or not on the CPU.
        """
        self._receive_into(_bytes_of(tensor), _monotonic() + timeout_s)

    def exchange(self, send: Tensor, source: Connection, receive: Tensor, timeout_s: float) -> None:
        """Send on this connection while receiving on another (or this) one, without waiting for either first.

        Raises:
            PeerLostError: A connection is broken, or nothing moved within ``timeout_s``.
            ValueError: A tensor is not contiguous, or not on the CPU.
        """
        self._wire.before_tensor()
        outgoing, incoming = _bytes_of(send), _bytes_of(receive)
        # Counted when it is handed over: an attempt that breaks has cost its bytes too.
        self._wire.sent_bytes += len(outgoing)
        self._wire.pump(self, outgoing, source, incoming, _monotonic() + timeout_s)

    def close(self) -> None:
        """Close the connection; the other end sees a lost peer."""
        if not self.closed:
            self.closed = True
            self._raw.close()

    def fileno(self) -> int:
        """Return the descriptor, for waiting."""
        return self._raw.fileno()

    def _send_all(self, data: bytes | memoryview) -> None:
        try:
            self._raw.settimeout(self._wire.limit_s)
            self._raw.sendall(data)
        except (OSError, ValueError) as error:
            raise PeerLostError(f"cannot send: {error}") from error

    def _receive_exactly(self, count: int, deadline: float) -> bytearray:
        buffer = bytearray(count)
        self._receive_into(memoryview(buffer), deadline)
        return buffer

    def _receive_into(self, view: memoryview, deadline: float) -> None:
        got = 0
        try:
            while got < len(view):
                # The limit is for the whole message: a peer that trickles bytes must not renew it.
                left = deadline - _monotonic()
                if left <= 0:
                    raise PeerLostError("nothing came within the limit")
                self._raw.settimeout(left)
                count = self._raw.recv_into(view[got:])
                if count == 0:
                    raise PeerLostError("the other end closed the connection")
                got += count
        except (OSError, ValueError) as error:
            raise PeerLostError(f"cannot receive: {error}") from error


class Wire:
    """A peer's end of the network: one listening socket, counted payload bytes, a limit for every wait.

    Args:
        host: Address to listen on.
        limit_s: Longest wait for a connection.
        on_tensor: Called before a tensor is sent.
        outside: Opens the fences around a technique while the wire makes a socket for it.
    """

    def __init__(
        self,
        host: str,
        *,
        limit_s: float = 10.0,
        on_tensor: Callable[[], None] | None = None,
        outside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.limit_s = limit_s
        self._outside = outside
        self.sent_bytes = 0
        """Payload bytes of tensors sent so far."""
        self._on_tensor = on_tensor
        self._listener = _socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((host, 0))
        # A backlog: peers connect to each other in a circle before any of them accepts.
        self._listener.listen(64)
        name = self._listener.getsockname()
        self.address: Address = (name[0], name[1])

    def connect(self, address: Address) -> Connection:
        """Connect to a listening peer.

        Raises:
            PeerLostError: Nobody listens there.
        """
        with self._outside():
            raw = _socket(socket.AF_INET, socket.SOCK_STREAM)
            # A peer that vanished without a reset would be waited for by the kernel's retries, minutes long.
            raw.settimeout(self.limit_s)
            try:
                raw.connect((address[0], address[1]))
            except OSError as error:
                raw.close()
                raise PeerLostError(f"cannot connect to {address}: {error}") from error
        return Connection(self, raw)

    def accept(self, timeout_s: float) -> Connection:
        """Take the next incoming connection.

        Raises:
            PeerLostError: None came within ``timeout_s``.
        """
        # Zero would make the socket non-blocking.
        self._listener.settimeout(max(timeout_s, 0.001))
        try:
            with self._outside():
                raw, _ = self._listener.accept()
        except OSError as error:
            raise PeerLostError("no connection came within the limit") from error
        return Connection(self, raw)

    def ready(
        self, connections: Iterable[Connection], timeout_s: float, *, listen: bool = False
    ) -> tuple[list[Connection], bool]:
        """Wait until a connection has something to read or broke.

        Args:
            connections: Those to wait for; closed ones are left out.
            timeout_s: Longest wait; nothing is ready then.
            listen: Whether to wait for somebody who wants to connect, too.

        Returns:
            The connections to read from, and whether somebody wants to connect (with ``listen``).
        """
        selector = selectors.DefaultSelector()
        with selector:
            for connection in connections:
                if not connection.closed:
                    selector.register(connection, selectors.EVENT_READ, connection)
            if listen:
                selector.register(self._listener, selectors.EVENT_READ, None)
            found = selector.select(timeout_s)
        readable = [key.data for key, _ in found if key.data is not None]
        return readable, any(key.data is None for key, _ in found)

    def pump(
        self,
        target: Connection,
        outgoing: memoryview,
        source: Connection,
        incoming: memoryview,
        deadline: float,
    ) -> None:
        """Send and receive at once, each as fast as its socket allows.

        Args:
            target: Takes the outgoing bytes.
            outgoing: What is sent.
            source: Brings the incoming bytes; it may be the target.
            incoming: What is filled.
            deadline: When nothing may be left, in seconds of the monotonic clock.

        Raises:
            PeerLostError: A connection is broken, or nothing moved any more before the deadline.
        """
        sent = got = 0
        try:
            # Two peers that both block in a send wait for each other once the sockets' buffers are full.
            target._raw.setblocking(False)
            source._raw.setblocking(False)
            while sent < len(outgoing) or got < len(incoming):
                sent, got = self._pump_once(target, outgoing, sent, source, incoming, got, deadline)
        except (OSError, ValueError) as error:
            raise PeerLostError(f"exchange broke: {error}") from error

    def _pump_once(
        self,
        target: Connection,
        outgoing: memoryview,
        sent: int,
        source: Connection,
        incoming: memoryview,
        got: int,
        deadline: float,
    ) -> tuple[int, int]:
        wants: dict[Connection, int] = {}
        if sent < len(outgoing):
            # In a group of two both directions share one connection, which can be registered once only.
            wants[target] = wants.get(target, 0) | selectors.EVENT_WRITE
        if got < len(incoming):
            wants[source] = wants.get(source, 0) | selectors.EVENT_READ
        with selectors.DefaultSelector() as selector:
            for connection, events in wants.items():
                selector.register(connection, events)
            found = selector.select(max(deadline - _monotonic(), 0))
        if not found:
            raise PeerLostError("nothing moved within the limit")
        for key, events in found:
            if events & selectors.EVENT_READ:
                # In portions, so that neither direction keeps the other waiting.
                count = source._raw.recv_into(incoming[got : got + _CHUNK])
                if count == 0:
                    raise PeerLostError("the other end closed the connection")
                got += count
            if events & selectors.EVENT_WRITE and key.fileobj is target:
                sent += target._raw.send(outgoing[sent : sent + _CHUNK])
        return sent, got

    def before_tensor(self) -> None:
        """Let the scenario's fault strike before a tensor is sent."""
        if self._on_tensor is not None:
            self._on_tensor()

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()


def _bytes_of(tensor: Tensor) -> memoryview:
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError("only contiguous CPU tensors can be sent")
    return tensor.detach().view(-1).view(torch.uint8).numpy().data
