"""NCCL's rules over Gloo: a carrier that refuses what would hang, or fail, on a group of accelerators.

Gloo forgives much: messages are matched by their pair's order whatever else a rank has started, and connections are
there from the beginning. Under ``rules: nccl`` (runner profiles) each rank writes what it starts into a file that all
others read. An operation counts as ended once the operations of all ranks, run in the order of their start, would have
come to its end (``ledger``); ranks that never would are told at once which rank, operation and rule it is. Times under
it mean nothing: every wait reads files.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from paceline.worker.case_error import RuleBreachError
from paceline.worker.communication.ledger import FIRST_BY_ALL, Ledger, Operation
from paceline.worker.communication.transport import Message, TorchTransport, Waitable

_isend, _irecv = dist.isend, dist.irecv
_sleep = time.sleep
LOOK_S, LONGEST_LOOK_S = 5e-5, 1e-3
"""Between two looks at what others have started, at first and after some: ranks that wait need no core."""
CHUNK_BYTES = 1 << 16


class Journal:
    """One file a rank of what each has started, in a folder that all ranks of a communicator share."""

    def __init__(self, folder: Path, rank: int, world_size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Opened here and never during a technique's call, where the fences refuse files.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._files = [os.open(folder / str(r), flags, 0o600) for r in range(world_size)]
        self._offsets = [0] * world_size
        self.rank = rank

    def write(self, operation: Operation) -> None:
        """Append what this rank starts."""
        line = json.dumps([operation.collective, operation.sends, operation.receives])
        os.write(self._files[self.rank], f"{line}\n".encode())

    def read(self, rank: int) -> list[Operation]:
        """Return what a rank has started since the last call."""
        found: list[Operation] = []
        while data := os.pread(self._files[rank], CHUNK_BYTES, self._offsets[rank]):
            end = data.rfind(b"\n") + 1
            if not end:  # a line that is being written
                break
            self._offsets[rank] += end
            for line in data[:end].splitlines():
                collective, sends, receives = json.loads(line)
                found.append(
                    Operation(
                        collective=collective,
                        sends=tuple((p, n) for p, n in sends),
                        receives=tuple((p, n) for p, n in receives),
                    )
                )
        return found

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            os.close(file)


class RulesTransport(TorchTransport):
    """A Gloo group that holds its ranks to NCCL's rules.

    Args:
        folder: Of this communicator alone, shared by its ranks.
        group: Of Gloo; None is the default group.
    """

    def __init__(self, folder: Path, group: Any = None) -> None:
        super().__init__(group)
        self.posts_ahead = False
        self._journal = Journal(folder, self.rank, self.world_size)
        self._ledger = Ledger(self.world_size)
        self._started = 0
        self._lock = threading.Lock()  # backward of a library may run in a thread of its own

    def _start(self, sends: Sequence[Message], receives: Sequence[Message]) -> list[Waitable]:
        """Start a batch at the place in the order at which NCCL would."""
        number = self._note(
            Operation(
                sends=tuple((p, t.numel() * t.element_size()) for t, p in sends),
                receives=tuple((p, t.numel() * t.element_size()) for t, p in receives),
            )
        )
        works: list[Any] = [_irecv(t, src=self._peer(p), group=self._group) for t, p in receives]
        works += [_isend(t, dst=self._peer(p), group=self._group) for t, p in sends]
        return [_Ruled(self, number, works)]

    def _collective(self, name: str, run: Any, tensor: Tensor, *, wait: bool) -> Waitable | None:
        number = self._note(Operation(collective=f"{name} of {tensor.numel()} × {str(tensor.dtype)[6:]}"))
        if wait:
            # Gloo would hang in, or mix up, what does not fit: it is called once it is known to end.
            self.await_end(number)
            run(False)
            return None
        return _Ruled(self, number, [run(True)])

    def all_reduce(self, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Sum over ranks in place."""
        call = super().all_reduce
        return self._collective("all_reduce", lambda later: call(tensor, wait=not later), tensor, wait=wait)

    def all_gather(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Concatenate every rank's tensor into ``output``."""
        call = super().all_gather
        return self._collective(
            "all_gather", lambda later: call(output, tensor, wait=not later), tensor, wait=wait
        )

    def reduce_scatter(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Sum over ranks and keep this rank's share."""
        call = super().reduce_scatter
        return self._collective(
            "reduce_scatter", lambda later: call(output, tensor, wait=not later), tensor, wait=wait
        )

    def broadcast(self, tensor: Tensor, root: int, *, wait: bool = True) -> Waitable | None:
        """Copy the root's tensor to all ranks."""
        call = super().broadcast
        name = f"broadcast from rank {root}"
        return self._collective(name, lambda later: call(tensor, root, wait=not later), tensor, wait=wait)

    def reduce(self, tensor: Tensor, root: int, *, wait: bool = True) -> Waitable | None:
        """Sum over ranks into the root's tensor."""
        call = super().reduce
        name = f"reduce to rank {root}"
        return self._collective(name, lambda later: call(tensor, root, wait=not later), tensor, wait=wait)

    def all_to_all(self, output: Tensor, tensor: Tensor, *, wait: bool = True) -> Waitable | None:
        """Send the i-th equal share to rank i."""
        call = super().all_to_all
        return self._collective(
            "all_to_all", lambda later: call(output, tensor, wait=not later), tensor, wait=wait
        )

    def barrier(self) -> None:
        """Wait until every rank has come here."""
        self.await_end(self._note(Operation(collective="barrier")))
        super().barrier()

    def close(self) -> None:
        """Give up the group and its files."""
        super().close()
        self._journal.close()

    def await_end(self, number: int) -> None:
        """Wait until one of this rank's operations would have ended.

        Raises:
            RuleBreachError: It never would.
        """
        ledger, pause = self._ledger, LOOK_S
        while True:
            with self._lock:
                for rank in range(self.world_size):
                    ledger.add(rank, self._journal.read(rank))
                ledger.settle()
            if ledger.finished[self.rank] > number:
                return
            if ledger.breach is not None:
                raise RuleBreachError(f"it breaks a rule of NCCL: {ledger.breach}")
            _sleep(pause)
            pause = min(2 * pause, LONGEST_LOOK_S)

    def _note(self, operation: Operation) -> int:
        with self._lock:
            number = self._started
            if not number and not operation.collective and self.world_size > 1:
                # NCCL connects all ranks in it, and waits for those that take no part.
                raise RuleBreachError(
                    f"it breaks a rule of NCCL: rank {self.rank}, operation 1 ({operation.text()}): {FIRST_BY_ALL}"
                )
            self._journal.write(operation)
            self._started += 1
        return number


class _Ruled:
    """A started operation, which ends when it would under the rules."""

    def __init__(self, transport: RulesTransport, number: int, works: Sequence[Any]) -> None:
        self._transport, self._number, self._works = transport, number, works

    def wait(self) -> None:
        self._transport.await_end(self._number)
        for work in self._works:
            work.wait()

    def get_future(self) -> Any:
        """Return the collective's own future: a library waits for it, and the next operation is held to the rules."""
        return self._works[0].get_future()
