"""The communicator that techniques must use: every byte, message and operation passes through it and is counted.

Counting happens here, outside the technique, so that bytes on the wire are a measurement and not a statement. The same
place records each operation for hang reports, splits a call's time into communication and labelled spans, and holds the
fault hooks. Techniques see the public methods of ``Comm``; the harness reads ``counters`` and ``take_split``.

One module: a byte that a backend moved and nobody counted would be the fault that it exists to exclude.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor
from torch.futures import Future

from paceline.worker.communication.fault import Fault
from paceline.worker.communication.trace import TraceWriter
from paceline.worker.communication.transport import Message, Transport, Waitable
from paceline.worker.timing.split import DeviceSplit, HostSplit, Marks, Split

_sleep = time.sleep


@dataclass(slots=True)
class Counters:
    """What one rank has put on the wire and taken from it since the last reset."""

    world_size: int
    sent_bytes: list[int] = field(init=False)
    """Payload bytes sent to each rank."""
    sent_messages: list[int] = field(init=False)
    received_bytes: list[int] = field(init=False)
    backend_calls: int = 0
    """Calls of the backend's own collectives, whose bytes only the kernel's counters can tell."""
    backend_bytes: int = 0
    """Bytes of the tensors that this rank has handed to them, whatever travels for it."""
    long_bytes: int = 0
    """Payload from which on a sent message counts as a long one."""
    long_messages: int = 0

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set every count to zero."""
        self.sent_bytes = [0] * self.world_size
        self.sent_messages = [0] * self.world_size
        self.received_bytes = [0] * self.world_size
        self.backend_calls = self.backend_bytes = self.long_messages = 0


class Transfer:
    """A started exchange; it must be waited for before the call returns."""

    __slots__ = ("_comm", "_done", "_late_s", "_traces", "_waits")

    def __init__(
        self, comm: Comm, waits: list[Waitable], traces: list[int], late_s: Sequence[float] = ()
    ) -> None:
        self._comm = comm
        self._late_s = late_s
        self._waits = waits
        self._traces = traces
        self._done = False

    def wait(self) -> None:
        """Block until all messages of the exchange have been sent and received; a second call does nothing."""
        if self._done:
            return
        comm = self._comm
        start = comm._split.begin()
        trace = comm._trace if len(self._waits) == len(self._traces) else None
        for index, work in enumerate(self._waits):
            work.wait()
            if index < len(self._late_s):
                _sleep(self._late_s[index])
            if trace is not None:
                trace.leave(self._traces[index])
        comm._finish(self._traces if trace is None else (), start)
        self._done = True
        comm._pending.discard(self)


class Backend:
    """The backend's own collectives, counted as calls and by what is handed to them; what travels, the kernel knows."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self._transport = comm._transport

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum ``tensor`` over ranks in place."""
        self._call("all_reduce", tensor, lambda: self._transport.all_reduce(tensor))

    def start_all_reduce(self, tensor: Tensor) -> Transfer:
        """Begin an in-place sum and return at once."""
        return self._begin("all_reduce", tensor, lambda: self._transport.all_reduce(tensor, wait=False))

    def future_all_reduce(self, tensor: Tensor) -> Future[Tensor]:
        """Begin an in-place sum; the future holds the tensor. For libraries that wait for futures themselves.

        Raises:
            TypeError: The carrier has no futures (threads of the debug driver).
        """
        comm = self._comm
        trace = self._hand("all_reduce", tensor)
        if trace is None:
            left_out: Future[Tensor] = Future()
            left_out.set_result(tensor)
            return left_out
        work = self._transport.all_reduce(tensor, wait=False)
        get_future = getattr(work, "get_future", None)
        if get_future is None:
            raise TypeError("this carrier has no futures")

        def done(future: Future[Any]) -> Tensor:
            future.wait()
            if comm._trace is not None:
                comm._trace.leave(trace)
            return tensor

        found: Future[Tensor] = get_future().then(done)
        return found

    def all_gather(self, output: Tensor, tensor: Tensor) -> None:
        """Concatenate equal tensors of all ranks into ``output``."""
        self._call("all_gather", tensor, lambda: self._transport.all_gather(output, tensor))

    def start_all_gather(self, output: Tensor, tensor: Tensor) -> Transfer:
        """Begin an all-gather and return at once."""
        return self._begin(
            "all_gather", tensor, lambda: self._transport.all_gather(output, tensor, wait=False)
        )

    def reduce_scatter(self, output: Tensor, tensor: Tensor) -> None:
        """Sum over ranks and keep this rank's equal share in ``output``."""
        self._call("reduce_scatter", tensor, lambda: self._transport.reduce_scatter(output, tensor))

    def start_reduce_scatter(self, output: Tensor, tensor: Tensor) -> Transfer:
        """Begin a reduce-scatter and return at once."""
        return self._begin(
            "reduce_scatter",
            tensor,
            lambda: self._transport.reduce_scatter(output, tensor, wait=False),
        )

    def broadcast(self, tensor: Tensor, root: int) -> None:
        """Copy the root's tensor to every rank, in place."""
        hands = self._comm.rank == root
        self._call("broadcast", tensor, lambda: self._transport.broadcast(tensor, root), hands=hands)

    def reduce(self, tensor: Tensor, root: int) -> None:
        """Sum over ranks into the root's tensor; other ranks' tensors may be overwritten."""
        self._call("reduce", tensor, lambda: self._transport.reduce(tensor, root))

    def all_to_all(self, output: Tensor, tensor: Tensor) -> None:
        """Exchange equal shares: the i-th goes to rank i."""
        self._call("all_to_all", tensor, lambda: self._transport.all_to_all(output, tensor))

    def _call(self, kind: str, tensor: Tensor, run: Callable[[], object], *, hands: bool = True) -> object:
        """Run a collective and return what it gives; None where a fault leaves it out."""
        trace = self._hand(kind, tensor, hands=hands)
        if trace is None:
            return None
        start = self._comm._split.begin()
        found = run()
        self._comm._finish([trace], start)
        return found

    def _begin(self, kind: str, tensor: Tensor, run: Callable[[], Waitable | None]) -> Transfer:
        comm = self._comm
        trace = self._hand(kind, tensor)
        if trace is None:
            return Transfer(comm, [], [])
        work = run()
        transfer = Transfer(comm, [work] if work is not None else [], [trace])
        comm._pending.add(transfer)
        return transfer

    def _hand(self, kind: str, tensor: Tensor, *, hands: bool = True) -> int | None:
        """Count and trace a call, and the tensor where this rank hands one over; None where a fault leaves it out."""
        trace = self._comm._begin(kind, -1, tensor)
        if trace is not None:
            counters = self._comm.counters
            counters.backend_calls += 1
            counters.backend_bytes += hands * tensor.numel() * tensor.element_size()
        return trace


class Comm:
    """A rank's communicator.

    Attributes:
        rank: This rank, from 0.
        world_size: Number of ranks.
        posts_ahead: Whether receives may be started long before their messages are sent.
        backend: The backend's own collectives.

    Args:
        transport: Carries messages.
        trace: Where operations are noted for hang reports.
        faults: What befalls them.
        marks: In the stream of an asynchronous device; None where the host's clock tells when work was done.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        trace: TraceWriter | None = None,
        faults: Sequence[Fault] = (),
        marks: Marks | None = None,
    ) -> None:
        self._transport = transport
        self._trace = trace
        self._spare_trace: TraceWriter | None = None
        self._faults = tuple(f for f in faults if f.rank == transport.rank)
        self._num_operations = 0
        self._armed = bool(self._faults)
        self._pending: set[Transfer] = set()
        self._split: Split = HostSplit() if marks is None else DeviceSplit(marks)
        self._muted = False
        self._copies: list[Message] | None = None
        self.rank = transport.rank
        self.world_size = transport.world_size
        self.posts_ahead = transport.posts_ahead
        self.counters = Counters(transport.world_size)
        self.backend = Backend(self)

    # What techniques call

    def start(self, *, sends: Sequence[Message] = (), receives: Sequence[Message] = ()) -> Transfer:
        """Begin sends and receives together and return at once.

        Args:
            sends: Contiguous tensors and the ranks that they go to; they must not change before ``wait``.
            receives: Contiguous tensors to fill and the ranks that they come from.

        Messages between two ranks arrive in the order in which they were started. Empty tensors are not sent.

        Raises:
            ValueError: A peer outside the group or this rank itself, or a tensor that is not contiguous.
        """
        kept_sends = [m for m in sends if self._usable(m)]
        kept_receives = [m for m in receives if self._usable(m)]
        traces: list[int] = []
        allowed_sends: list[Message] = []
        allowed_receives: list[Message] = []
        for tensor, peer in kept_receives:
            trace = self._begin("recv", peer, tensor)
            if trace is not None:
                traces.append(trace)
                allowed_receives.append((tensor, peer))
        for tensor, peer in kept_sends:
            trace = self._begin("send", peer, tensor)
            if trace is not None:
                traces.append(trace)
                allowed_sends.append((tensor, peer))
                nbytes = tensor.numel() * tensor.element_size()
                self.counters.sent_bytes[peer] += nbytes
                self.counters.sent_messages[peer] += 1
                self.counters.long_messages += nbytes >= self.counters.long_bytes
                if self._copies is not None:
                    self._copies.append((tensor.clone(), peer))
        for tensor, peer in allowed_receives:
            self.counters.received_bytes[peer] += tensor.numel() * tensor.element_size()
        late_s = [self._lateness(peer) for _, peer in allowed_receives] if self._armed else ()
        begin = self._split.begin()
        waits = [] if self._muted else self._transport.post(allowed_sends, allowed_receives)
        self._split.communicated(begin)
        transfer = Transfer(self, waits, traces, late_s)
        self._pending.add(transfer)
        return transfer

    def send(self, tensor: Tensor, to: int) -> None:
        """Send a contiguous tensor and wait until it may be reused."""
        self.start(sends=[(tensor, to)]).wait()

    def receive(self, tensor: Tensor, source: int) -> None:
        """Fill a contiguous tensor with the next message of ``source``."""
        self.start(receives=[(tensor, source)]).wait()

    def exchange(self, send: Tensor, to: int, receive: Tensor, source: int) -> None:
        """Send to one rank while receiving from another (or the same), and wait for both."""
        self.start(sends=[(send, to)], receives=[(receive, source)]).wait()

    @contextmanager
    def span(self, name: Literal["compress", "decompress", "pack", "unpack", "compute"]) -> Iterator[None]:
        """Label the time inside; communication inside is counted as communication, not to the span."""
        with self._split.span(name):
            yield

    # What the harness calls

    def take_split(self) -> dict[str, float]:
        """Return seconds spent in ``communicate`` and in each labelled span since the last call, and reset."""
        return self._split.take()

    def splitting(self, on: bool) -> None:
        """Book times of parts from now on, or no longer; without it they are booked where that costs nothing."""
        self._split.switch(on)

    def copy_sent(self) -> None:
        """Keep a copy of every message that is sent from now on; for small ones."""
        self._copies = []

    def take_copies(self) -> list[Message]:
        """Return the messages sent since the last call, with their receivers."""
        found, self._copies = self._copies or [], []
        return found

    def begin_call(self) -> None:
        """Note in the trace that a technique's call begins."""
        if self._trace is not None:
            self._trace.begin_call()

    @property
    def num_pending(self) -> int:
        """Number of transfers that were started and not waited for."""
        return len(self._pending)

    def drop_pending(self) -> None:
        """Wait for and forget transfers that a technique left behind."""
        for transfer in list(self._pending):
            transfer.wait()

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Make every operation return at once without moving data, to time a technique's computation alone."""
        self._muted = True
        try:
            yield
        finally:
            self._muted = False

    def tracing(self, on: bool) -> None:
        """Switch the trace of operations on or off (its cost is itself a measured quantity)."""
        self._trace, self._spare_trace = (
            (self._trace or self._spare_trace, None)
            if on
            else (
                None,
                self._trace or self._spare_trace,
            )
        )

    def arm_faults(self, on: bool) -> None:
        """Let faults strike from the next operation on, counted anew, or no longer."""
        if on and not self._armed:
            self._num_operations = 0
        self._armed = on and bool(self._faults)

    def _usable(self, message: Message) -> bool:
        tensor, peer = message
        if not 0 <= peer < self.world_size or peer == self.rank:
            raise ValueError(f"rank {self.rank} cannot exchange with rank {peer} of {self.world_size}")
        if not tensor.is_contiguous():
            raise ValueError("only contiguous tensors can be exchanged; call .contiguous() or pack first")
        return tensor.numel() > 0

    def _begin(self, kind: str, peer: int, tensor: Tensor) -> int | None:
        """Count and trace an operation and let faults strike; None when a fault leaves the operation out."""
        number = self._num_operations
        self._num_operations += 1
        if self._armed and self._strike(number, peer):
            return None
        if kind in ("send", "recv") or not self._muted:
            if self._trace is None:
                return 0
            return self._trace.enter(kind, peer, tensor.numel() * tensor.element_size())
        return None

    def _finish(self, traces: Sequence[int], start: Any) -> None:
        self._split.communicated(start)
        if self._trace is not None:
            for offset in traces:
                self._trace.leave(offset)

    def _strike(self, number: int, peer: int) -> bool:
        """Let faults strike an operation that is about to begin; True when it is to be left out."""
        for fault in self._faults:
            if fault.kind == "link" or not fault.hits(number, peer):
                continue
            if fault.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif fault.kind == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif fault.kind == "delay":
                _sleep(fault.seconds)
            else:
                return True
        return False

    def _lateness(self, peer: int) -> float:
        """Return for how long link faults hold a message from ``peer`` back, in seconds."""
        number = self._num_operations - 1
        return sum(f.seconds for f in self._faults if f.kind == "link" and f.hits(number, peer))
