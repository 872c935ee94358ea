"""What ranks shared in every step, noted by the harness from the messages themselves, and what follows from it.

``Ledger`` compares the copies that the communicator kept with the codes that the replica says are its own. ``Plain``
takes the steps that a log stands for with code of its own: it knows the initial weights, the codes, and what each code
decodes to. For codes of one byte that is a table, asked for before the first step, so that it cannot depend on what
was measured.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from paceline.families.training.api.fine_tuning.directions import direction
from paceline.families.training.api.fine_tuning.probing import Entry, ProbingReplica
from paceline.families.training.api.model import next_symbol_loss
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.proofs.sandbox import Sandbox
from paceline.worker.ranks.session import Session

BYTE_VALUES = 256


class Ledger:
    """Notes this rank's codes step by step.

    Args:
        sandbox: The technique; its replica must be probing.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox.replica, ProbingReplica)
        self.replica = sandbox.replica
        self.comm = sandbox.replica.comm
        task = sandbox.replica.task
        self.code_bytes = int(sandbox.replica.code_bytes)
        self.shape = (task.num_perturbations, self.code_bytes)
        self.nothing = torch.zeros(self.shape, dtype=torch.uint8)
        self.rows: list[Tensor] = []
        self.problem: str | None = None
        self._num_saved = 0
        self.comm.copy_sent()

    def watch(self) -> saved_tensors_hooks:
        """Return a context for a step, in which no tensor may be kept for backward."""
        return saved_tensors_hooks(self._saved, lambda tensor: tensor)

    def _saved(self, tensor: Tensor) -> Tensor:
        self._num_saved += 1
        return tensor

    def note(self, step: int, members: Sequence[int]) -> None:
        """Note the codes of the step just done, and whether they are what was sent."""
        own: Any = self.replica.own
        copies = self.comm.take_copies()
        if not isinstance(own, Tensor) or own.dtype != torch.uint8 or tuple(own.shape) != self.shape:
            self.rows.append(self.nothing)
            self._object(step, f"its own codes are no uint8 of shape {self.shape}")
            return
        self.rows.append(own.clone())
        for peer in members:
            if peer == self.comm.rank:
                continue
            sent = [tensor.reshape(-1).view(torch.uint8) for tensor, to in copies if to == peer]
            count = sum(t.numel() for t in sent)
            if count != own.numel():
                self._object(step, f"it sent {count} bytes to rank {peer}, and its codes have {own.numel()}")
            elif not torch.equal(torch.cat(sent), own.reshape(-1)):
                self._object(step, f"what it sent to rank {peer} are not the codes that it says are its own")
        if {to for _, to in copies} - set(members):
            self._object(step, "it sent messages to a rank that does not take part")
        if self._num_saved:
            self._object(step, f"it keeps {self._num_saved} tensors for backward")
        if self.comm.counters.backend_calls:
            self._object(step, "it used the backend's own collectives, whose bytes nobody sees")

    def _object(self, step: int, problem: str) -> None:
        self.problem = self.problem or f"step {step + 1}: {problem}"


def entry(session: Session, row: Tensor, step: int, members: Sequence[int]) -> Entry:
    """Return a step's entry from what each rank noted; a collective of the harness."""
    rows = torch.zeros(session.world_size, *row.shape, dtype=torch.int32)
    rows[session.rank] = row
    session.control.sum_in_place(rows)
    return Entry(step=step, members=tuple(members), codes=rows[list(members)].to(torch.uint8))


def entries(session: Session, rows: Sequence[Tensor]) -> list[Entry]:
    """Return the log of a run in which all ranks took part, from what each noted."""
    everyone = tuple(range(session.world_size))
    whole = entry(session, torch.stack(list(rows)).flatten(1), 0, everyone).codes
    shape = rows[0].shape
    return [
        Entry(step=step, members=everyone, codes=whole[:, step].reshape(len(everyone), *shape).clone())
        for step in range(len(rows))
    ]


class Codes:
    """What codes stand for, as the technique says; asked one by one, in an order that it cannot know.

    Args:
        sandbox: A replica that has not measured anything.
        order: Draws the order.
    """

    def __init__(self, sandbox: Sandbox, order: random.Random) -> None:
        assert isinstance(sandbox.replica, ProbingReplica)
        self.sandbox, self.replica = sandbox, sandbox.replica
        self.code_bytes = int(sandbox.replica.code_bytes)
        self.order = order
        self.table: Tensor | None = None
        if self.code_bytes == 1:
            self.table = self._ask(torch.arange(BYTE_VALUES, dtype=torch.uint8)[:, None])

    def decode(self, codes: Tensor) -> Tensor:
        """Return the slopes of codes, (…, bytes of a code), in float64."""
        flat = codes.reshape(-1, self.code_bytes)
        found = self._ask(flat) if self.table is None else self.table[flat[:, 0].long()]
        return found.view(codes.shape[:-1])

    def _ask(self, codes: Tensor) -> Tensor:
        order = list(range(len(codes)))
        self.order.shuffle(order)
        found = torch.empty(len(codes), dtype=torch.float64)
        with self.sandbox.watch():
            for place in order:
                found[place] = float(self.replica.decode(codes[place : place + 1].clone()))
        return found


class Plain:
    """The weights that follow from the initial ones and a log.

    Args:
        setting: The point's.
        world_size: Number of ranks.
        codes: What codes stand for.
    """

    def __init__(self, setting: Setting, world_size: int, codes: Codes) -> None:
        self.model = setting.model()
        self.task = setting.task(rank=0, world_size=world_size)
        self.codes = codes
        self.tuned = [p for p in self.model.parameters() if p.requires_grad]
        self.vector = torch.cat([p.detach().reshape(-1) for p in self.tuned])

    @property
    def weights(self) -> list[Tensor]:
        """All weights, in the model's order."""
        self._show(self.vector)
        return [p.detach() for p in self.model.parameters()]

    def follow(self, entry: Entry) -> None:
        """Take the step of an entry."""
        slopes = self.codes.decode(entry.codes)
        total = torch.zeros_like(self.vector)
        for place, rank in enumerate(entry.members):
            for probe in range(entry.codes.shape[1]):
                total = total.add(self._direction(entry.step, rank, probe), alpha=float(slopes[place, probe]))
        rate = self.task.rate(entry.step)
        self.vector = self.vector.sub(total, alpha=rate / slopes.numel())

    def slopes(self, sequences_BS: Tensor, step: int, rank: int) -> list[float]:
        """Return the slopes of the loss that a rank has to find at these weights."""
        found = []
        for probe, part in enumerate(sequences_BS.chunk(self.task.num_perturbations)):
            z = self._direction(step, rank, probe)
            above, below = (self._loss(part, z, sign * self.task.epsilon) for sign in (1, -1))
            found.append((above - below) / (2 * self.task.epsilon))
        return found

    def _loss(self, sequences_BS: Tensor, z: Tensor, distance: float) -> float:
        self._show(self.vector.add(z, alpha=distance))
        with torch.no_grad():
            return float(next_symbol_loss(self.model, sequences_BS))

    def _direction(self, step: int, rank: int, probe: int) -> Tensor:
        return direction(self.task.seed, step, rank, probe, len(self.vector)).to(self.vector.device)

    def _show(self, vector: Tensor) -> None:
        with torch.no_grad():
            pieces = torch.split(vector, [p.numel() for p in self.tuned])
            for parameter, piece in zip(self.tuned, pieces, strict=True):
                parameter.copy_(piece.view(parameter.shape))


def difference(weights: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Return the largest difference of an element; infinite where something is not finite."""
    found = 0.0
    for a, held in zip(weights, other, strict=True):
        b = held.to(a.device)  # copies of a run lie on the host
        if not torch.equal(a, b):
            largest = float((a.detach().double() - b.detach().double()).abs().max())
            found = max(found, math.inf if math.isnan(largest) else largest)
    return found
