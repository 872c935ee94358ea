"""The replica of ranks that share every sequence: each has some positions, all weights, and the technique's attention.

Whatever works position by position (norms, perceptrons, embedding, loss) is local; attention is what techniques differ
in. Gradients are averaged after backward as in ``ddp-ring``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from paceline.families.collectives import rings
from paceline.families.collectives.problem import chunk_bounds
from paceline.families.training.exchange import RingAverage
from paceline.families.training.model import Layer
from paceline.families.training.replica import Comm, Cost, FlatReplica, Task, UnsupportedError
from paceline.families.training.sequence.layout import contiguous

Layout = Callable[[int, int], list[list[int]]]
ITEM = 4
"""Bytes of an element."""


class SequenceReplica(FlatReplica):
    """Trains on some positions of every sequence.

    Args:
        task: The rank's task.
        comm: The communicator.
        layout: Which positions lie where.

    Raises:
        UnsupportedError: Some rank has no position.
    """

    def __init__(self, task: Task, comm: Comm, layout: Layout = contiguous) -> None:
        found = layout(task.context, task.world_size)
        if not all(found):
            raise UnsupportedError(f"{task.context} positions are too few for {task.world_size} ranks")
        super().__init__(task, comm)
        self.places = [torch.tensor(own, device=task.device) for own in found]
        """Each rank's positions, in the order in which it holds them."""
        self.counts = [len(own) for own in found]
        self.ring = RingAverage(comm, self.flat.values.numel(), dtype=torch.float32, device=task.device)
        self.layers = [m for m in task.model.modules() if isinstance(m, Layer)]
        for layer in self.layers:
            layer.attend = self.attend

    @abstractmethod
    def attend(self, q_BHtK: Tensor, k_BHtK: Tensor, v_BHtK: Tensor) -> Tensor:
        """Return what this rank's positions see of all positions up to themselves, (B, H, t, K)."""

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Leave gradients whose mean over ranks is that of all positions; return a loss of which the same holds."""
        self.flat.gradients.zero_()
        own_t = self.places[self.comm.rank]
        logits_BtV = self.model(sequences_BS[:, :-1][:, own_t], own_t)
        targets = sequences_BS[:, 1:][:, own_t].reshape(-1)
        total = functional.cross_entropy(logits_BtV.reshape(len(targets), -1), targets, reduction="sum")
        loss = total * (self.comm.world_size / self.task.tokens)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
        return loss.detach()

    def exchange_gradients(self, step: int) -> None:
        """Average the gradients."""
        self.ring.run(self.flat.gradients)


def sequence_cost(task: Task, attention: Callable[[int], tuple[float, int]]) -> Cost:
    """Return the cost of the gradients' ring and of attention in every layer, forward and backward.

    Args:
        task: The task.
        attention: Gives the bytes and messages that a rank sends for one layer in one step.
    """
    sizes = [stop - start for start, stop in chunk_bounds(task.num_parameters, task.world_size)]
    layers = len(list(task.model.get_submodule("layers").children()))
    sent, messages = [], []
    for rank in range(task.world_size):
        elements, count = rings.sent(sizes, rank)
        nbytes, more = attention(rank) if task.world_size > 1 else (0.0, 0)
        sent.append(ITEM * elements + layers * nbytes)
        messages.append(count + layers * more)
    return Cost(sent_bytes=task.steps * max(sent), peak_bytes=max(sent), messages=task.steps * max(messages))


def row_bytes(task: Task) -> float:
    """Return the bytes of one position of all sequences, in the width of the model."""
    width = task.model.get_parameter("embedding.weight").shape[1]
    return ITEM * width * task.tokens / task.context


def counts_of(task: Task, layout: Layout = contiguous) -> Sequence[int]:
    """Return the positions of every rank."""
    return [len(own) for own in layout(task.context, task.world_size)]
