"""Carriers of point-to-point messages and backend collectives, below the byte-counting ``Comm``.

``TorchTransport`` is a ``torch.distributed`` process group. ``ThreadTransport`` joins threads of one process through
shared memory: it serves the ``debug`` driver, where every rank can be stepped through in one debugger.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from itertools import product
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

_isend, _irecv, _batch, _p2p = dist.isend, dist.irecv, dist.batch_isend_irecv, dist.P2POp
_all_reduce, _broadcast, _reduce = dist.all_reduce, dist.broadcast, dist.reduce
_all_gather, _reduce_scatter = dist.all_gather_into_tensor, dist.reduce_scatter_tensor
_all_to_all, _barrier = dist.all_to_all_single, dist.barrier
_end_group = dist.destroy_process_group
"""Bound at import, before any technique is loaded, so that a patched module changes nothing here."""

Message = tuple[Tensor, int]
"""A contiguous tensor and the rank that it goes to or comes from."""


class Waitable(Protocol):
    """A started operation."""

    def wait(self) -> Any:
        """Block until the operation has finished."""
        ...


class Transport(Protocol):
    """What ``Comm`` needs from a carrier; ranks are positions in the group, from 0."""

    rank: int
    world_size: int
    posts_ahead: bool
    """True when receives may be started long before their messages are sent, in any number. False for carriers that
    execute operations in the order of their start, where a receive blocks what was started after it."""

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> list[Waitable]:
        """Start sends and receives together; messages between a pair of ranks keep their order.

        The result holds the receives first, then the sends, or fewer entries where the backend starts them as one.
        """
        ...

    def all_reduce(self, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Sum over ranks in place."""
        ...

    def all_gather(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Concatenate every rank's tensor (equal sizes) into ``output``."""
        ...

    def reduce_scatter(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Sum over ranks and keep this rank's equal share."""
        ...

    def broadcast(self, tensor: Tensor, root: int, *, wait: bool = True) -> Waitable | None:
        """Copy the root's tensor to all ranks, in place."""
        ...

    def reduce(self, tensor: Tensor, root: int, *, wait: bool = True) -> Waitable | None:
        """Sum over ranks into the root's tensor; other ranks' tensors may be overwritten."""
        ...

    def all_to_all(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Send the i-th equal share to rank i, and receive everyone's share for this rank."""
        ...

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        ...


class TorchTransport:
    """A ``torch.distributed`` process group."""

    def __init__(self, group: Any = None) -> None:
        self._group = group
        self.group = group
        self.rank = dist.get_rank(group)
        self.world_size = dist.get_world_size(group)
        self._global = [dist.get_global_rank(group, r) for r in range(self.world_size)] if group else None
        self.posts_ahead = dist.get_backend(group) == "gloo"
        self._device = "cpu"
        """Torch's name of the device whose tensors alone the group moves; cpu where it moves those of any."""
        self._deferred: list[_Deferred] = []

    def _peer(self, rank: int) -> int:
        return self._global[rank] if self._global else rank

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> list[Waitable]:
        """Start point-to-point messages.

        Where operations run in the order of their start, messages of one call go in one batch, and receives without a
        send wait until somebody waits for them, so that they do not block the sends that their peers wait for. A batch
        that receives from the same rank takes them along: messages of a pair arrive in the order of their start.
        """
        if not self.posts_ahead:
            if not sends:
                if not receives:
                    return []
                # All in one, as they are waited for: one after the other each would wait for the one before.
                self._deferred.append(_Deferred(self, receives))
                return [self._deferred[-1]]
            return [self._start_in_order(sends, receives, self._deferred)]
        waits: list[Any] = [_irecv(t, src=self._peer(p), group=self._group) for t, p in receives]
        waits += [_isend(t, dst=self._peer(p), group=self._group) for t, p in sends]
        return waits

    def _start_in_order(
        self, sends: Sequence[Message], receives: Sequence[Message], before: Sequence[_Deferred]
    ) -> Waitable:
        """Start messages behind those earlier receives from the same ranks that have not been started yet."""
        peers = {p for _, p in receives}
        first: list[_Deferred] = []
        for waiting in reversed(before):
            if not peers.isdisjoint(waiting.peers):
                peers |= waiting.peers
                first.insert(0, waiting)
        work = _Once(self._start(sends, [*(m for w in first for m in w.receives), *receives]))
        for waiting in first:
            waiting.work = work
            self._deferred.remove(waiting)
        return work

    def _start(self, sends: Sequence[Message], receives: Sequence[Message]) -> list[Waitable]:
        """Start messages as one operation, whose parts run together."""
        landings = [(t, self._moved(t, empty=True)) for t, _ in receives]
        operations = [
            _p2p(_irecv, landing, self._peer(p), self._group)
            for (_, landing), (_, p) in zip(landings, receives, strict=True)
        ]
        operations += [_p2p(_isend, self._moved(t), self._peer(p), self._group) for t, p in sends]
        works: list[Waitable] = list(_batch(operations))
        staged = [(t, landing) for t, landing in landings if landing is not t]
        return [_Staged(works, staged)] if staged else works

    def _moved(self, tensor: Tensor, *, empty: bool = False) -> Tensor:
        """Return a tensor that the group can move: itself, or of the host's small ones a copy, or room for one."""
        if self._device in ("cpu", tensor.device.type):
            return tensor
        return torch.empty_like(tensor, device=self._device) if empty else tensor.to(self._device)

    def meet(self, device: str) -> None:
        """Let all ranks take part in the group's first operation, where that is what connects them.

        NCCL and its kin set a communicator up in the first operation that is started, and all ranks must take part in
        it: a first message between two of three ranks waits for the third forever.

        Args:
            device: Torch's name of the device whose tensors the group moves.
        """
        if not self.posts_ahead:
            self._device = device
            self.all_reduce(torch.zeros(1, device=device))

    def all_reduce(self, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Call the backend's all-reduce."""
        work: Waitable | None = _all_reduce(tensor, group=self._group, async_op=not wait)
        return work

    def all_gather(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Call the backend's all-gather into one tensor."""
        work: Waitable | None = _all_gather(output, tensor, group=self._group, async_op=not wait)
        return work

    def reduce_scatter(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Call the backend's reduce-scatter from one tensor."""
        work: Waitable | None = _reduce_scatter(output, tensor, group=self._group, async_op=not wait)
        return work

    def broadcast(self, tensor: Tensor, root: int, *, wait: bool = True) -> Waitable | None:
        """Call the backend's broadcast."""
        work: Waitable | None = _broadcast(tensor, src=self._peer(root), group=self._group, async_op=not wait)
        return work

    def reduce(self, tensor: Tensor, root: int, *, wait: bool = True) -> Waitable | None:
        """Call the backend's reduce."""
        work: Waitable | None = _reduce(tensor, dst=self._peer(root), group=self._group, async_op=not wait)
        return work

    def all_to_all(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Call the backend's all-to-all with equal shares."""
        work: Waitable | None = _all_to_all(output, tensor, group=self._group, async_op=not wait)
        return work

    def barrier(self) -> None:
        """Call the backend's barrier."""
        _barrier(group=self._group)

    def close(self) -> None:
        """Give up the group: its sockets, threads and buffers; all ranks have finished with it."""
        _end_group(self._group)


class _Staged:
    """Receives of the host's tensors through ones of the device, which are copied once they have arrived."""

    def __init__(self, works: Sequence[Any], staged: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._works, self._staged = works, staged

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        for tensor, landing in self._staged:
            tensor.copy_(landing)


class _Deferred:
    """Receives that start, as one operation, when they or later ones from the same rank are waited for or started."""

    def __init__(self, transport: TorchTransport, receives: Sequence[Message]) -> None:
        self._transport, self.receives = transport, receives
        self.peers = {peer for _, peer in receives}
        self.work: Waitable | None = None

    def wait(self) -> None:
        if self.work is None:
            waiting = self._transport._deferred
            before = waiting[: waiting.index(self)]
            waiting.remove(self)
            self.work = self._transport._start_in_order((), self.receives, before)
        self.work.wait()


class _Once:
    """Messages that are one operation; whoever waits first waits for all."""

    def __init__(self, works: Sequence[Waitable]) -> None:
        self._works = list(works)

    def wait(self) -> None:
        works, self._works = self._works, []
        for work in works:
            work.wait()


class ThreadHub:
    """The shared state that joins the ``ThreadTransport`` of every rank."""

    def __init__(self, world_size: int, *, timeout_s: float = 60.0) -> None:
        self.world_size = world_size
        self.timeout_s = timeout_s
        self.mail = {pair: SimpleQueue[Tensor]() for pair in product(range(world_size), repeat=2)}
        self.expected: dict[tuple[int, int], deque[_Receive]] = defaultdict(deque)
        self.meeting = threading.Barrier(world_size, timeout=timeout_s)
        self.board: dict[int, Tensor] = {}


class _Sent:
    def wait(self) -> None:
        return None


class _Receive:
    """A receive that takes its message when waited for, after the earlier receives from the same rank took theirs."""

    def __init__(self, hub: ThreadHub, source: int, rank: int, tensor: Tensor) -> None:
        self._hub, self._key, self._tensor, self._done = hub, (source, rank), tensor, False
        hub.expected[self._key].append(self)

    def wait(self) -> None:
        while not self._done:
            self._hub.expected[self._key].popleft()._take()

    def _take(self) -> None:
        self._done = True
        try:
            message = self._hub.mail[self._key].get(timeout=self._hub.timeout_s)
        except Empty:
            raise TimeoutError(
                f"no message from rank {self._key[0]} within {self._hub.timeout_s} s"
            ) from None
        if message.numel() != self._tensor.numel() or message.dtype != self._tensor.dtype:
            raise RuntimeError(
                f"rank {self._key[1]} expected {self._tensor.numel()} × {self._tensor.dtype} from rank "
                f"{self._key[0]}, which sent {message.numel()} × {message.dtype}"
            )
        self._tensor.copy_(message.view(self._tensor.shape))


class ThreadTransport:
    """One rank of a group whose ranks are threads of this process."""

    def __init__(self, hub: ThreadHub, rank: int) -> None:
        self._hub = hub
        self.rank = rank
        self.world_size = hub.world_size
        self.posts_ahead = True

    def post(self, sends: Sequence[Message], receives: Sequence[Message]) -> list[Waitable]:
        """Copy outgoing messages into mailboxes; receives take them when waited for."""
        hub = self._hub
        for tensor, peer in sends:
            hub.mail[self.rank, peer].put(tensor.detach().clone())
        waits: list[Waitable] = [_Receive(hub, peer, self.rank, tensor) for tensor, peer in receives]
        return waits + [_Sent() for _ in sends]

    def _everyone(self, tensor: Tensor) -> list[Tensor]:
        self._hub.board[self.rank] = tensor.detach().clone()
        self._hub.meeting.wait()
        parts = [self._hub.board[r] for r in range(self.world_size)]
        self._hub.meeting.wait()
        return parts

    def all_reduce(self, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Sum in rank order."""
        tensor.copy_(_sum(self._everyone(tensor)))
        return None if wait else _Sent()

    def all_gather(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Concatenate in rank order."""
        output.view(-1).copy_(torch.cat([p.view(-1) for p in self._everyone(tensor)]))
        return None if wait else _Sent()

    def reduce_scatter(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Sum in rank order and keep this rank's share."""
        total = _sum(self._everyone(tensor)).view(self.world_size, -1)
        output.view(-1).copy_(total[self.rank])
        return None if wait else _Sent()

    def broadcast(self, tensor: Tensor, root: int, *, wait: bool = True) -> Waitable | None:
        """Copy from the root."""
        tensor.copy_(self._everyone(tensor)[root])
        return None if wait else _Sent()

    def reduce(self, tensor: Tensor, root: int, *, wait: bool = True) -> Waitable | None:
        """Sum into the root's tensor."""
        parts = self._everyone(tensor)
        if self.rank == root:
            tensor.copy_(_sum(parts))
        return None if wait else _Sent()

    def all_to_all(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Take every rank's share for this rank."""
        parts = self._everyone(tensor)
        shares = [p.view(self.world_size, -1)[self.rank] for p in parts]
        output.view(-1).copy_(torch.cat(shares))
        return None if wait else _Sent()

    def barrier(self) -> None:
        """Meet all other threads."""
        self._hub.meeting.wait()


def _sum(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total
