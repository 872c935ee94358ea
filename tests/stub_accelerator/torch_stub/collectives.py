"""The backend ``stubccl``: collectives and messages between stub accelerators, which Gloo carries underneath.

A call returns at once. A thread of the group runs calls one after the other, each once the stream that it was made on
has come to it, and streams that wait for a call hold back what follows on them: the host waits for nothing but
barriers. Messages of one ``batch_isend_irecv`` are one call.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from paceline.worker.case_error import RuleBreachError
from paceline.worker.communication.ledger import FIRST_BY_ALL, Ledger, Operation
from paceline.worker.communication.rules import Journal

_ops = torch.ops.stub
_live: set[Group] = set()
"""Groups whose threads have to end before the interpreter does."""
END_S = 5.0
"""How long a group's thread may take to end; it waits for ranks that may be gone."""
BREACH = "it breaks a rule of NCCL"
LOOK_S = 2e-4
"""Between two looks at what other ranks have started."""


@dataclass(slots=True, kw_only=True)
class _Call:
    """What the group's thread runs, once a stream has come to it."""

    operation: Operation
    """What it is under NCCL's rules."""
    number: int
    """Its place among the operations that this rank has started."""
    run: Callable[[], Any]
    """Calls Gloo on the host's views of the tensors; returns its works."""
    ready: torch.Event
    mark: int


@dataclass(frozen=True, slots=True)
class _Message:
    """A part of a batch."""

    tensor: Tensor
    peer: int
    call: Callable[..., Any]
    sends: bool = field(kw_only=True)


class _Work(dist.Work):
    """A started call; waiting for it holds the current stream back, and the host goes on."""

    def __init__(
        self, group: Group, mark: int, tensors: Sequence[Tensor], *, blocks_host: bool = False
    ) -> None:
        super().__init__()
        self._group, self._mark, self._tensors, self._blocks_host = group, mark, list(tensors), blocks_host

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Let what follows on the current stream wait for the call."""
        _ops.wait_for_mark(self._mark)
        if self._blocks_host:
            torch.accelerator.current_stream().synchronize()
        return True

    def get_future(self) -> Future[Any]:
        """Return a future that is there at once, and holds back streams that wait for it."""
        found: Future[Any] = Future(devices=[self._group.device])
        with self._group.stream:
            found.set_result(self._tensors)
        return found


class Group(dist.ProcessGroup):
    """A communicator of stub accelerators."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rules = _Rules(store, rank, size)
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("host", store), rank, size, timeout)
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._batch: list[_Message] | None = None
        self._stream: torch.Stream | None = None
        _live.add(self)

    # What torch.distributed calls

    def getBackendName(self) -> str:
        """Return the name under which torch knows the backend."""
        return "stubccl"

    def getGroupName(self) -> str:
        """Return the name under which torch finds the group again."""
        return str(dist.distributed_c10d._world.pg_names[self])

    def setGroupName(self, name: str) -> None:
        """Nothing: torch keeps names of groups in Python as well."""

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        """Reduce over ranks in place."""
        return self._collective("all_reduce", tensors, lambda v: self._gloo.allreduce(v, opts))

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        """Copy the root's tensor to all ranks."""
        return self._collective("broadcast", tensors, lambda v: self._gloo.broadcast(v, opts))

    def reduce(self, tensors: list[Tensor], opts: Any = None) -> dist.Work:
        """Reduce over ranks into the root's tensor."""
        return self._collective("reduce", tensors, lambda v: self._gloo.reduce(v, opts))

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> dist.Work:
        """Concatenate the ranks' tensors."""
        return self._collective(
            "all_gather", [output, tensor], lambda v: self._gloo._allgather_base(v[0], v[1], opts)
        )

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> dist.Work:
        """Reduce over ranks and keep this rank's share."""
        return self._collective(
            "reduce_scatter", [output, tensor], lambda v: self._gloo._reduce_scatter_base(v[0], v[1], opts)
        )

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, received: list[int], sent: list[int], opts: Any = None
    ) -> dist.Work:
        """Exchange shares."""
        return self._collective(
            "all_to_all",
            [output, tensor],
            lambda v: self._gloo.alltoall_base(v[0], v[1], received, sent, opts),
        )

    def allgather(self, outputs: list[list[Tensor]], tensors: list[Tensor], opts: Any = None) -> dist.Work:
        """Collect the ranks' tensors in a list."""
        return self._collective(
            "all_gather", [*outputs[0], *tensors], lambda v: self._gloo.allgather([v[:-1]], [v[-1]], opts)
        )

    def barrier(self, opts: Any = None) -> dist.Work:
        """Wait, on the host too, until every rank has come here."""
        return self._collective("barrier", [], lambda _: self._gloo.barrier())

    def send(self, tensors: list[Tensor], peer: int, tag: int = 0) -> dist.Work:
        """Send a tensor; in a batch, with the rest of it."""
        return self._message(_Message(tensors[0], peer, self._gloo.send, sends=True))

    def recv(self, tensors: list[Tensor], peer: int, tag: int = 0) -> dist.Work:
        """Receive a tensor; in a batch, with the rest of it."""
        return self._message(_Message(tensors[0], peer, self._gloo.recv, sends=False))

    def shutdown(self) -> None:
        """End the group's thread once it has run what was started."""
        _live.discard(self)
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join(END_S)
            self._thread = None
        self._rules.close()

    # How calls run

    @property
    def device(self) -> torch.device:
        """The device that this rank's thread uses."""
        return torch.device("stub", torch.accelerator.current_device_index())

    @property
    def stream(self) -> torch.Stream:
        """The stream that stands for the group: what is recorded on it may be reused when the calls are done."""
        if self._stream is None:
            self._stream = torch.Stream(self.device)
        return self._stream

    @contextmanager
    def batch(self) -> Iterator[list[dist.Work]]:
        """Make one call of the messages inside; the list holds its work afterwards."""
        works: list[dist.Work] = []
        self._batch = []
        try:
            yield works
        finally:
            messages, self._batch = self._batch, None
        works.append(self._send_and_receive(messages))

    def _message(self, message: _Message) -> dist.Work:
        if self._batch is None:
            return self._send_and_receive([message])
        self._batch.append(message)
        return _Work(self, 0, [message.tensor])  # the batch's own is handed out

    def _send_and_receive(self, messages: Sequence[_Message]) -> dist.Work:
        operation = Operation(
            sends=tuple((m.peer, m.tensor.nbytes) for m in messages if m.sends),
            receives=tuple((m.peer, m.tensor.nbytes) for m in messages if not m.sends),
        )
        views = [_ops.host_view(m.tensor) for m in messages]

        def run() -> list[Any]:
            return [m.call([view], m.peer, 0) for m, view in zip(messages, views, strict=True)]

        return self._start(operation, [m.tensor for m in messages], run)

    def _collective(
        self, name: str, tensors: Sequence[Tensor], call: Callable[[list[Tensor]], Any]
    ) -> dist.Work:
        views = [_ops.host_view(t) for t in tensors]
        sizes = f" of {tensors[-1].numel()} × {str(tensors[-1].dtype)[6:]}" if tensors else ""
        return self._start(Operation(collective=f"{name}{sizes}"), tensors, lambda: [call(views)])

    def _start(self, operation: Operation, tensors: Sequence[Tensor], run: Callable[[], Any]) -> dist.Work:
        _ops.throw_failure()
        number = self._rules.note(operation)
        ready, mark = torch.Event("stub"), _ops.new_mark()
        ready.record(torch.accelerator.current_stream())
        with self.stream:
            _ops.wait_for_mark(mark)
        for tensor in tensors:
            # Its memory goes to nobody else before the call is done.
            tensor.record_stream(self.stream)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stubccl", daemon=True)
            self._thread.start()
        self._calls.put(_Call(operation=operation, number=number, run=run, ready=ready, mark=mark))
        return _Work(self, mark, tensors, blocks_host=operation.collective == "barrier")

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.ready.synchronize()
                # Gloo would hang in a collective that does not fit: it is called once it is known to end.
                works = [] if call.operation.collective else call.run()
                self._rules.await_end(call.number)
                for work in works or call.run():
                    work.wait()
            except Exception as error:
                _ops.fail(f"stubccl on rank {self.rank()}, {call.operation.text()}: {error}")
            _ops.reach_mark(call.mark)


class _Rules:
    """Holds a group to NCCL's rules: what every rank starts is written to a file that all of them read."""

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        if rank == 0:
            store.set("rules", tempfile.mkdtemp(prefix="stubccl-"))
        self._folder = Path(store.get("rules").decode())
        self._journal, self._ledger = Journal(self._folder, rank, size), Ledger(size)
        self._rank, self._size, self._started = rank, size, 0

    def note(self, operation: Operation) -> int:
        """Take note of what this rank starts, and return its number.

        Raises:
            RuleBreachError: It begins the group, and not all ranks take part in it.
        """
        number = self._started
        if not number and not operation.collective and self._size > 1:
            raise RuleBreachError(
                f"{BREACH}: rank {self._rank}, operation 1 ({operation.text()}): {FIRST_BY_ALL}"
            )
        self._journal.write(operation)
        self._started += 1
        return number

    def await_end(self, number: int) -> None:
        """Wait until an operation of this rank would have ended.

        Raises:
            RuleBreachError: It never would.
        """
        while True:
            for rank in range(self._size):
                self._ledger.add(rank, self._journal.read(rank))
            self._ledger.settle()
            if self._ledger.finished[self._rank] > number:
                return
            if self._ledger.breach is not None:
                raise RuleBreachError(f"{BREACH}: {self._ledger.breach}")
            time.sleep(LOOK_S)

    def close(self) -> None:
        """Close the files and remove them."""
        self._journal.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def shutdown() -> None:
    """End the groups that nobody has ended."""
    for group in list(_live):
        group.shutdown()


def register() -> None:
    """Make the backend known, as the one of the stub."""
    dist.Backend.register_backend("stubccl", Group, devices=["stub"])
