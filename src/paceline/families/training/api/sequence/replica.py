"""The replica of ranks that share every sequence: each has some positions, all weights, and the technique's attention.

Whatever works position by position (norms, perceptrons, embedding, loss) is local; attention is what techniques differ
in. Gradients are averaged after backward as in ``ddp-ring``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from paceline.base.counting import number_of
from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.exchange import RingAverage
from paceline.families.training.api.model import Layer
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task, UnsupportedError
from paceline.families.training.api.sequence.layout import Layout, contiguous, count, positions
from paceline.families.training.api.sizes import SOFTMAX, Size

ITEM = 4
"""Bytes of an element."""


class SequenceReplica(FlatReplica):
    """Trains on some positions of every sequence.

    Args:
        task: The rank's task.
        comm: The communicator.
        layout: Which positions lie where.

    Raises:
        UnsupportedError: Some rank has no position, or the model's attention is another.
    """

    attention: ClassVar[str] = SOFTMAX
    """The kind that ``attend`` computes."""

    def __init__(self, task: Task, comm: Comm, layout: Layout = contiguous) -> None:
        self.runs = layout(task.context, task.world_size)
        """Each rank's positions as runs of neighbours, in the order in which it holds them."""
        if (kind := size_of_model(task).attention) != self.attention:
            raise UnsupportedError(f"it shares {self.attention} attention, not {kind}")
        if not all(self.runs):
            raise UnsupportedError(
                f"{task.context} positions are too few for {number_of(task.world_size, 'rank')}"
            )
        super().__init__(task, comm)
        self.places = [torch.tensor(positions(own), device=task.device) for own in self.runs]
        """The same one by one."""
        self.counts = [count(own) for own in self.runs]
        self.ring = RingAverage(comm, self.flat.values.numel(), dtype=torch.float32, device=task.device)
        self.layers = [m for m in task.model.modules() if isinstance(m, Layer)]
        for layer in self.layers:
            # Only attention mixes positions; in its place alone the model differs from one process's.
            layer.attend = self.attend

    @abstractmethod
    def attend(self, q_BHtK: Tensor, k_BGtK: Tensor, v_BGtK: Tensor) -> Tensor:
        """Return what this rank's positions see of all positions up to themselves, (B, H, t, K); G heads of keys."""

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Leave gradients whose mean over ranks is that of all positions; return a loss of which the same holds."""
        self.flat.gradients.zero_()
        own_t = self.places[self.comm.rank]
        # With their positions: rotary angles are those of the whole sequence, not of the rank's part.
        logits_BtV = self.model(sequences_BS[:, :-1][:, own_t], own_t)
        targets = sequences_BS[:, 1:][:, own_t].reshape(-1)
        total = functional.cross_entropy(logits_BtV.reshape(len(targets), -1), targets, reduction="sum")
        # n/tokens, not 1/own: a rank with one position more weighs more, and the mean over ranks is exact.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one position of all sequences of a step has in one layer."""

    queries_bytes: float
    keys_bytes: float
    """Of keys, and as much of values."""
    sums_bytes: float
    """Of one number for each head of queries."""
    head_width: int


def row_of(task: Task) -> Row:
    """Return what one position has, in bytes."""
    size, sequences = size_of_model(task), task.tokens / task.context
    return Row(
        queries_bytes=ITEM * sequences * size.heads * size.head_width,
        keys_bytes=ITEM * sequences * size.num_kv_heads * size.head_width,
        sums_bytes=ITEM * sequences * size.heads,
        head_width=size.head_width,
    )


def size_of_model(task: Task) -> Size:
    """Return the dimensions of the task's model."""
    layer = next(module for module in task.model.modules() if isinstance(module, Layer))
    return layer.size


def counts_of(task: Task, layout: Layout = contiguous) -> list[int]:
    """Return the positions of every rank."""
    return [count(own) for own in layout(task.context, task.world_size)]
