"""Messages between stages on carriers that run operations in the order of their start, as NCCL does.

There a receive that is started early blocks what is started behind it, and neighbours that send to each other first
wait forever. So all ranks start their messages in one order: by the time at which the table would have them ready, were
every pass one unit long and every message there at once. A receive is started once the rank comes to a pass that begins
no earlier, or together with the first send that is later, as one operation.

Why nobody waits forever: of all messages that have not arrived take the first. What its sender needs to have it ready
was earlier, so it is there. What either of its ranks started before is earlier as well, and has ended. Exchanges inside
a pass, between ranks that share its layers, stand at its beginning in that order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.training.api.pipeline.schedule import Action, Table, times
from paceline.families.training.api.replica import Comm
from paceline.worker.communication.comm import Transfer


@dataclass(frozen=True, slots=True)
class Message:
    """An activation (F) or its gradient (B) on its way to a stage."""

    kind: str
    stage: int
    microbatch: int


def messages(row: Sequence[Action], num_stages: int) -> Iterator[tuple[Action, Message]]:
    """Yield what a rank sends in a step, in its order, each with the pass that it comes from."""
    for action in row:
        if action.kind == "F" and action.stage + 1 < num_stages:
            yield action, Message("F", action.stage + 1, action.microbatch)
        elif action.kind in ("B", "I") and action.stage > 0:
            yield action, Message("B", action.stage - 1, action.microbatch)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A message at its place in the order of all."""

    ready: int
    sender: int
    """Place in the pipeline."""
    message: Message
    receiver: int


class OrderedMessages:
    """A rank's messages of one step after another.

    Args:
        comm: The communicator.
        line: The ranks of the pipeline, in the order of their stages.
        place: This rank's place among them.
        table: What all of them do.
        num_stages: Stages of all.
    """

    def __init__(self, comm: Comm, line: Sequence[int], place: int, table: Table, num_stages: int) -> None:
        self._comm, self._line, self._place = comm, line, place
        spans = times(table, num_stages)
        self._begins = {action: begin for action, (begin, _) in spans.items()}
        size = len(line)
        found = [
            _Entry(spans[action][1], sender, message, message.stage % size)
            for sender, row in enumerate(table)
            for action, message in messages(row, num_stages)
            if message.stage % size != sender
        ]
        # Of messages that are ready at once those of the first rank go first, in its own order: sorting is stable.
        ordered = sorted(found, key=lambda entry: (entry.ready, entry.sender))
        self._order = [entry for entry in ordered if place in (entry.sender, entry.receiver)]
        self._shape: tuple[int, ...] = ()
        self._device = torch.device("cpu")
        self._left: deque[_Entry] = deque()
        self._coming: dict[Message, tuple[Tensor, Transfer]] = {}
        self._sent: dict[Message, tuple[Transfer, Tensor]] = {}

    def begin(self, shape: Sequence[int], device: torch.device) -> None:
        """Begin a step, whose messages are float32 of a shape."""
        self._shape, self._device = tuple(shape), device
        self._left = deque(self._order)

    def come_to(self, action: Action) -> None:
        """Receive what is ready before a pass begins."""
        due = []
        while self._left and self._left[0].ready <= self._begins[action]:
            # No send of this rank: it came from an earlier pass, which has started it.
            assert self._left[0].receiver == self._place
            due.append(self._left.popleft())
        if due:
            transfer = self._start(due)
            # Such carriers start a receive that stands alone when it is waited for: here is its place in the order.
            transfer.wait()

    def send(self, message: Message, tensor: Tensor) -> None:
        """Start a send, together with the receives that come before it in the order."""
        due = []
        while self._left[0].message != message:
            due.append(self._left.popleft())
        entry = self._left.popleft()
        transfer = self._start(due, [(tensor, self._line[entry.receiver])])
        # Kept, since a send reads it until it has left.
        self._sent[message] = transfer, tensor

    def take(self, message: Message) -> Tensor:
        """Return a message, once it has arrived."""
        tensor, transfer = self._coming.pop(message)
        transfer.wait()
        return tensor

    def forget(self, message: Message) -> None:
        """Give up what was sent, and is known to have arrived."""
        transfer, _ = self._sent.pop(message)
        transfer.wait()

    def finish(self) -> None:
        """Wait for what is still leaving at a step's end."""
        for transfer, _ in self._sent.values():
            transfer.wait()
        self._sent.clear()

    def _start(self, due: Sequence[_Entry], sends: Sequence[tuple[Tensor, int]] = ()) -> Transfer:
        """Start receives and a send as one operation."""
        landings = [torch.empty(self._shape, dtype=torch.float32, device=self._device) for _ in due]
        receives = [(t, self._line[entry.sender]) for t, entry in zip(landings, due, strict=True)]
        transfer = self._comm.start(sends=sends, receives=receives)
        for entry, landing in zip(due, landings, strict=True):
            self._coming[entry.message] = landing, transfer
        return transfer
