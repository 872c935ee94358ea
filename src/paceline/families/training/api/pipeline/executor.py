"""A rank that follows a schedule: stages of the model, activations and gradients on their way, in microbatches.

Every rank reads the whole batch: the first stage needs its symbols, the last one those that follow. The embedding
belongs to the first stage; where the last one lies on another rank, that rank has a copy as its head, sends the copy's
gradient in each step, and is sent the new values.

PyTorch's own stages (torch.distributed.pipelining) send around the communicator that counts bytes and times waits, and
its passes have no clock of their own. Orders are held against its schedules' in tests.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from paceline.base.counting import number_of
from paceline.families.training.api.pipeline.deferred import Pending, WeightGradients, accumulate
from paceline.families.training.api.pipeline.ordered import Message, OrderedMessages, messages
from paceline.families.training.api.pipeline.schedule import Action, Table, check
from paceline.families.training.api.replica import Comm, Cost, Replica, Share, Task, UnsupportedError
from paceline.worker.communication.comm import Transfer

_clock_ns = time.perf_counter_ns
_processor_ns = time.thread_time_ns

Pass = tuple[Action, int, int, int]
"""An action, when it began and ended (ns, host clock), and the processor's time of the thread in between (ns)."""
Kept = tuple[Tensor, Tensor | None, Tensor | None]
"""The sequences, the activation that came into a stage, and what came out; None without one, or to be recomputed."""
POSTED_AHEAD = 2
"""Messages of each peer that may come in while this rank computes."""


class PipelineReplica(Replica):
    """Follows the table that a technique gives.

    Args:
        task: The rank's task.
        comm: The communicator.
        chunks: Stages on each rank.
        recompute: Keep what comes into a stage alone, and go forward again before going back.
        line: The ranks of this rank's pipeline, in the order of their stages; default: all ranks.

    Raises:
        UnsupportedError: The layers cannot be dealt out evenly, or the schedule has no such size.
    """

    def __init__(
        self,
        task: Task,
        comm: Comm,
        chunks: int = 1,
        *,
        recompute: bool = False,
        line: Sequence[int] | None = None,
    ) -> None:
        layers = list(task.model.get_submodule("layers").children())
        self.recompute = recompute
        self.line = tuple(range(task.world_size) if line is None else line)
        self.place = self.line.index(task.rank)
        length = len(self.line)
        self.num_stages = length * chunks
        if len(layers) % self.num_stages:
            raise UnsupportedError(
                f"{number_of(len(layers), 'layer')} cannot be dealt out evenly to {self.num_stages} stages"
            )
        deal = len(layers) // self.num_stages
        self.table = self.schedule(length, task.microbatches)
        # Before anything is sent: a table that waits for itself is refused here, and does not hang in training.
        check(self.table, num_stages=self.num_stages, microbatches=task.microbatches)
        self.row = self.table[self.place]
        cut = {s: layers[s * deal : (s + 1) * deal] for s in range(self.place, self.num_stages, length)}
        self.stages = {s: [self.lay(layer) for layer in part] for s, part in cut.items()}
        self.has_first, self.has_last = 0 in self.stages, self.num_stages - 1 in self.stages
        self.last_place = (self.num_stages - 1) % length
        self.gradients = WeightGradients()
        for layer in chain.from_iterable(self.stages.values()):
            self.gradients.attach(layer)
        self.own = self._own_parameters(task.model, chain.from_iterable(cut.values()))
        # Cloned before _free_others gives the embedding's memory back on ranks without the first stage.
        head = self._embedding(task.model).detach().clone() if self.has_last and not self.has_first else None
        self._free_others(task.model)
        super().__init__(task, comm)
        # Kept as extra state and not owned: the first stage updates the embedding, this rank gets the new values.
        self.head = None if head is None else nn.Parameter(self.register_state("head", head))
        self._inbox: dict[Message, Tensor] = {}
        self._expected = {p: self._from(p) for p in range(length) if p != self.place}
        self._left: dict[int, deque[Message]] = {}
        self._coming: dict[int, deque[tuple[Message, Tensor, Transfer]]] = {
            p: deque() for p in self._expected
        }
        # 1F1B's neighbours send to each other at once. Where operations run in the order of their start, each send
        # would wait for a receive that is queued behind the peer's own send.
        ordered = OrderedMessages(comm, self.line, self.place, self.table, self.num_stages)
        self._ordered = None if comm.posts_ahead else ordered
        self._shape = (0, 0, 0)
        self._sent: dict[Message, tuple[Transfer, Tensor]] = {}
        """What was sent in this step: it must not change before it has left."""
        self._live: dict[tuple[int, int], Kept] = {}
        self._weights_later: dict[tuple[int, int], list[Pending]] = {}
        self.passes: list[Pass] = []
        """The actions of the step just done."""
        self.alive = 0
        """For how many microbatches of a stage it kept activations at one time, in the step just done."""

    @abstractmethod
    def schedule(self, ranks: int, microbatches: int) -> Table:
        """Return what every rank does in a step.

        Raises:
            UnsupportedError: There is no such schedule.
        """

    def lay(self, layer: nn.Module) -> nn.Module:
        """Return what stands for one of this rank's layers: itself."""
        return layer

    def held(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return what this rank keeps of a parameter of its layers: itself."""
        return parameter

    def part(self, sequences_BS: Tensor) -> Tensor:
        """Return the sequences that this rank's pipeline works through: all."""
        return sequences_BS

    # The parts of a step

    def make_optimizer(self) -> Optimizer:
        """Return the point's optimiser over this rank's parameters."""
        return self.task.optimizer(self.own.values())

    def forward_backward(self, sequences_BS: Tensor) -> Tensor | None:
        """Follow the table; return the mean loss of the batch where the last stage lies."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.head is not None:
            self.head.grad = None
        micro = self.part(sequences_BS).chunk(self.task.microbatches)
        self._shape = (len(micro[0]), sequences_BS.shape[1] - 1, self._embedding(self.model).shape[1])
        self._left = {peer: deque(queue) for peer, queue in self._expected.items()}
        self._begin_messages()
        losses: list[Tensor] = []
        # With W's in the table weights' gradients are put off; without them B computes both, as autograd does.
        split = any(a.kind == "W" for a in self.row)
        self.passes, self.alive = [], 0
        for action in self.row:
            key = action.stage, action.microbatch
            # Outside the clock of the pass: what an action waits for is bubble, not work.
            arrived = self._await(action)
            begin, processor = _clock_ns(), _processor_ns()
            if action.kind == "F":
                self.gradients.defer = split
                losses += self._go_forward(*key, micro[action.microbatch], arrived)
            elif action.kind == "W":
                accumulate(self._weights_later.pop(key))
            else:
                self._backward(*key, arrived)
                if action.kind == "I":
                    self._weights_later[key] = self.gradients.take()
                else:
                    accumulate(self.gradients.take())
            # Inputs kept for a W count like activations: ZB-H1 is held to 1F1B's memory with both.
            self.alive = max(self.alive, len(self._live) + len(self._weights_later))
            self.passes.append((action, begin, _clock_ns(), _processor_ns() - processor))
        self._finish_messages()
        return torch.stack(losses).sum() if losses else None

    def exchange_gradients(self, step: int) -> None:
        """Send the gradient of the head's copy to the embedding."""
        if self.head is not None:
            assert self.head.grad is not None
            # The first stage receives at this point and sends nothing before: the pair cannot deadlock.
            self.comm.send(self.head.grad, self.line[0])
        elif self.has_first and self.last_place != 0:
            embedding = self._embedding(self.model)
            assert embedding.grad is not None
            arrived = torch.empty_like(embedding)
            self.comm.receive(arrived, self.line[self.last_place])
            embedding.grad.add_(arrived)

    def exchange_parameters(self, step: int) -> None:
        """Send the embedding's new values to the head."""
        if self.head is not None:
            self.comm.receive(self.head.data, self.line[0])
        elif self.has_first and self.last_place != 0:
            self.comm.send(self._embedding(self.model).detach(), self.line[self.last_place])

    # Around steps

    def shares(self) -> list[Share]:
        """Return this rank's parameters."""
        return [(number, 0, p.detach().reshape(-1)) for number, p in self.own.items()]

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's parameters and the optimiser's state of them."""
        return {
            "own": {number: p.detach().clone() for number, p in self.own.items()},
            "kept": {name: tensor.clone() for name, tensor in self.kept.items()},
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what ``state_dict`` returned, on the same rank of as many.

        Raises:
            ValueError: The state is another technique's, model's or number of ranks'.
        """
        given = state.get("own", {})
        if {n: p.shape for n, p in given.items()} != {n: p.shape for n, p in self.own.items()}:
            raise ValueError("the checkpoint does not fit this technique, model and number of ranks")
        with torch.no_grad():
            for number, parameter in self.own.items():
                parameter.copy_(given[number])
            for name, tensor in state["kept"].items():
                self.kept[name].copy_(tensor)
        self.optimizer.load_state_dict(state["optimizer"])

    # One action

    def _await(self, action: Action) -> Tensor | None:
        """Return what an action needs from another stage; None when it needs nothing."""
        if self._ordered is not None:
            self._ordered.come_to(action)
        if action.kind == "F" and action.stage > 0:
            return self._receive(Message("F", action.stage, action.microbatch))
        if action.kind in ("B", "I") and action.stage + 1 < self.num_stages:
            return self._receive(Message("B", action.stage, action.microbatch))
        return None

    def _go_forward(
        self, stage: int, microbatch: int, sequences_bS: Tensor, arrived: Tensor | None
    ) -> list[Tensor]:
        """Work through a stage, send on what comes out, and keep what its backward needs; return the loss if any."""
        # A leaf of the graph: backward stops here, and its gradient is what the stage before waits for.
        x = None if arrived is None else arrived.requires_grad_()
        # Without a graph no activation inside the stage is kept (GPipe, section 2.3); _backward builds it anew.
        with torch.set_grad_enabled(not self.recompute):
            y = self._stage(stage, sequences_bS, x)
        self._live[stage, microbatch] = sequences_bS, x, None if self.recompute else y
        if stage + 1 == self.num_stages:
            return [y.detach()]
        # Detached: what is sent must not keep this stage's graph alive.
        self._send(Message("F", stage + 1, microbatch), y.detach())
        return []

    def _stage(self, stage: int, sequences_bS: Tensor, x: Tensor | None) -> Tensor:
        """Return what comes out of a stage: an activation, or the loss."""
        model = self.model
        y = functional.embedding(sequences_bS[:, :-1], self._embedding(model)) if x is None else x
        cos_TK, sin_TK = (model.get_buffer(name)[: y.shape[1]] for name in ("cos_TK", "sin_TK"))
        for layer in self.stages[stage]:
            y = layer(y, cos_TK, sin_TK)
        if stage + 1 < self.num_stages:
            return y
        head = self._embedding(model) if self.head is None else self.head
        logits = self.gradients.linear(model.get_submodule("norm")(y), head)
        loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), sequences_bS[:, 1:].reshape(-1))
        # Equal microbatches: the sum of their losses and gradients is then the mean over the batch.
        return loss / self.task.microbatches

    def _backward(self, stage: int, microbatch: int, gradient: Tensor | None) -> None:
        sequences_bS, x, y = self._live.pop((stage, microbatch))
        if y is None:
            y = self._stage(stage, sequences_bS, x)
        torch.autograd.backward(y, gradient)
        if x is not None:
            assert x.grad is not None
            self._send(Message("B", stage - 1, microbatch), x.grad)

    # Messages

    def _begin_messages(self) -> None:
        if self._ordered is not None:
            self._ordered.begin(self._shape, self.task.device)
            return
        # Receives are posted before the first action: Gloo sends only once the receiver has announced itself.
        for peer in self._left:
            self._post(peer, POSTED_AHEAD)

    def _finish_messages(self) -> None:
        # At the step's end, when all have arrived: a wait after each send would serialise neighbours.
        for transfer, _ in self._sent.values():
            transfer.wait()
        self._sent.clear()
        if self._ordered is not None:
            self._ordered.finish()

    def _send(self, message: Message, tensor: Tensor) -> None:
        peer = message.stage % len(self.line)
        if peer == self.place:
            self._inbox[message] = tensor
        elif self._ordered is not None:
            self._ordered.send(message, tensor.contiguous())
        else:
            tensor = tensor.contiguous()
            # Not waited for: 1F1B's neighbours would wait for each other.
            # Kept, since a send reads it until it has left.
            self._sent[message] = self.comm.start(sends=[(tensor, self.line[peer])]), tensor

    def _drop_sent(self, arrived: Message) -> None:
        """Forget the activation whose gradient has come back: it has left. Gradients are kept to the step's end."""
        if arrived.kind == "B":
            # Its gradient has come back, so it has arrived: this wait is free, and gives the activation's memory back.
            sent = Message("F", arrived.stage + 1, arrived.microbatch)
            if self._ordered is not None:
                self._ordered.forget(sent)
                return
            transfer, _ = self._sent.pop(sent)
            transfer.wait()

    def _post(self, peer: int, ahead: int) -> None:
        """Let the next messages of a peer come in, in the order in which it sends them."""
        # In the sender's order and not in this rank's: Gloo matches messages of a pair by the order of their start.
        coming, left = self._coming[peer], self._left[peer]
        while left and len(coming) < ahead:
            buffer = torch.empty(self._shape, dtype=torch.float32, device=self.task.device)
            transfer = self.comm.start(receives=[(buffer, self.line[peer])])
            coming.append((left.popleft(), buffer, transfer))

    def _receive(self, message: Message) -> Tensor:
        """Return a message; those that its sender sent before are kept for later."""
        step = 1 if message.kind == "F" else -1
        peer = (message.stage - step) % len(self.line)
        if self._ordered is not None and message not in self._inbox:
            self._inbox[message] = self._ordered.take(message)
            self._drop_sent(message)
        # What the peer sent before may belong to a later action: it is kept, or its receive would block this one.
        while message not in self._inbox:
            self._post(peer, 1)
            arrived, buffer, transfer = self._coming[peer].popleft()
            transfer.wait()
            self._inbox[arrived] = buffer
            self._drop_sent(arrived)
            # Refilled at once: the next message travels while this rank computes. Two bound the memory.
            self._post(peer, POSTED_AHEAD)
        return self._inbox.pop(message)

    def _from(self, peer: int) -> list[Message]:
        """Return what a peer sends to this rank in a step, in its order."""
        # Both sides read the same table, so the receiver knows order and meaning of messages without any header.
        sent = (message for _, message in messages(self.table[peer], self.num_stages))
        return [m for m in sent if m.stage % len(self.line) == self.place]

    # What lies where

    @staticmethod
    def _embedding(model: nn.Module) -> nn.Parameter:
        return model.get_parameter("embedding.weight")

    def _own_parameters(self, model: nn.Module, layers: Iterable[nn.Module]) -> dict[int, nn.Parameter]:
        """Return what this rank keeps of the model's parameters, by their number in the model's order."""
        mine = {id(p) for layer in layers for p in layer.parameters()}
        if self.has_first:
            mine.add(id(self._embedding(model)))
        if self.has_last:
            mine.add(id(model.get_parameter("norm.gain")))
        return {number: self.held(p) for number, p in enumerate(model.parameters()) if id(p) in mine}

    def _free_others(self, model: nn.Module) -> None:
        mine = set(map(id, self.own.values()))
        for parameter in model.parameters():
            if id(parameter) not in mine:
                # Freed in place: the model keeps its shapes and numbering, by which shares are gathered.
                parameter.untyped_storage().resize_(0)


def pipeline_cost(task: Task, chunks: int = 1) -> Cost:
    """Return what the busiest rank sends: activations forward, gradients back, and the tied embedding's two ways.

    Args:
        task: The task.
        chunks: Stages on each rank.
    """
    n, m = task.world_size, task.microbatches
    if n == 1:
        return Cost(sent_bytes=0, peak_bytes=0, messages=0)
    embedding = task.model.get_parameter("embedding.weight")
    count, width = embedding.numel(), embedding.shape[1]
    stages = n * chunks
    sent, messages = [0] * n, [0] * n
    for stage in range(stages):
        rank = stage % n
        hops = (stage + 1 < stages) + (stage > 0)
        sent[rank] += hops * 4 * task.tokens * width
        messages[rank] += hops * m
    # The tied embedding: its gradient from the last rank, its new values from the first.
    for rank in (0, n - 1):
        sent[rank] += 4 * count
        messages[rank] += 1
    return Cost(sent_bytes=task.steps * max(sent), peak_bytes=max(sent), messages=task.steps * max(messages))
