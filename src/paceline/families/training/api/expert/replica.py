"""The replica of ranks that share experts: each reads sequences of its own, and holds some experts or parts of some.

Everything but the experts is on every rank; its gradients are averaged after backward as in ``ddp-ring``. What becomes
of tokens on the way to their experts and back is what techniques differ in, in three parts that the family calls one
after another: ``encode`` puts rows into the slots of all experts, ``run_experts`` lets the experts work on them,
``decode`` adds up what comes back.

Shape suffixes: G sequences of this rank, T positions, D width, E experts, C slots of an expert for a sequence, e this
rank's experts, F hidden width of an expert, f this rank's part of it, N rows of one expert.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.base.counting import number_of
from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.exchange import RingAverage
from paceline.families.training.api.expert.layer import expert_layers
from paceline.families.training.api.expert.routing import Routing
from paceline.families.training.api.flat import Flat
from paceline.families.training.api.model import loss_and_gradients
from paceline.families.training.api.replica import Comm, Cost, Replica, Share, Task, UnsupportedError

ITEM = 4
"""Bytes of an element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the closed forms of a point need."""

    ranks: int
    layers: int
    experts: int
    width: int
    """D."""
    hidden: int
    """F."""
    rows: int
    """Rows that a rank's ``encode`` fills for one expert: G · C."""

    @property
    def buffer_bytes(self) -> int:
        """Bytes of all slots of one rank's tokens in one layer."""
        return ITEM * self.experts * self.rows * self.width

    @property
    def weight_bytes(self) -> int:
        """Bytes of all experts of one layer."""
        return ITEM * 2 * self.experts * self.hidden * self.width


def shape_of(task: Task) -> Shape:
    """Return the dimensions of a task's model and of a rank's tokens."""
    layers = expert_layers(task.model)
    expert = layers[0].experts[0].get_parameter("up")
    sequences = task.tokens // task.context // task.world_size
    return Shape(
        ranks=task.world_size,
        layers=len(layers),
        experts=layers[0].num_experts,
        width=expert.shape[1],
        hidden=expert.shape[0],
        rows=sequences * layers[0].capacity(task.context),
    )


class ExpertReplica(Replica):
    """Trains with a share of the experts.

    Ranks form groups of ``slices`` neighbours. A group has as many experts as every other, in their order; each of its
    ranks has an equal part of every one's hidden width.

    Args:
        task: The rank's task.
        comm: The communicator.
        slices: Ranks among which an expert is divided.

    Raises:
        UnsupportedError: Experts, ranks or the hidden width cannot be dealt out evenly.
    """

    def __init__(self, task: Task, comm: Comm, slices: int = 1) -> None:
        shape = shape_of(task)
        if task.world_size % slices:
            raise UnsupportedError(
                f"{number_of(task.world_size, 'rank does', 'ranks do')} not form groups of {slices}"
            )
        self.num_groups, self.slices = task.world_size // slices, slices
        if shape.experts % self.num_groups:
            whom = "ranks" if slices == 1 else f"groups of {slices} ranks"
            raise UnsupportedError(
                f"{number_of(shape.experts, 'expert')} cannot be dealt out evenly to {self.num_groups} {whom}"
            )
        if shape.hidden % slices:
            raise UnsupportedError(f"a hidden width of {shape.hidden} cannot be cut into {slices}")
        self.shape = shape
        self.group, self.slice = divmod(task.rank, slices)
        self.num_own = shape.experts // self.num_groups
        self.layers = expert_layers(task.model)
        numbers = {id(p): number for number, p in enumerate(task.model.parameters())}
        of_experts = [p for layer in self.layers for p in layer.experts.parameters()]
        others = set(numbers.values()) - {numbers[id(p)] for p in of_experts}
        self.common = tuple(sorted(others))
        """Numbers of the parameters that all ranks hold."""
        self._owned: list[tuple[int, nn.Parameter, int]] = []
        """Number of an expert's parameter, where its part lies, and in which place there."""
        self.up_efD = [self._take(numbers, layer.experts, "up") for layer in self.layers]
        self.down_efD = [self._take(numbers, layer.experts, "down") for layer in self.layers]
        for parameter in of_experts:
            # Own parts were copied by _take; the whole experts would stay on every rank otherwise.
            parameter.untyped_storage().resize_(0)
        whole = list(task.model.parameters())
        # Only what all ranks hold goes into the ring; experts' gradients are complete on their rank.
        self.flat = Flat(nn.ParameterList(whole[number] for number in self.common))
        super().__init__(task, comm)
        self.ring = RingAverage(comm, self.flat.values.numel(), dtype=torch.float32, device=task.device)
        for index, layer in enumerate(self.layers):
            # Bound with the layer's index, which techniques need to find their part of its experts.
            layer.mixture = partial(self.mixture, index)

    # What techniques say

    @abstractmethod
    def encode(self, h_GTD: Tensor, routing: Routing) -> Tensor:
        """Return tokens in the slots of their experts, (E, G, C, D); slots that nobody takes are zero."""

    @abstractmethod
    def run_experts(self, layer: int, slots_EGCD: Tensor) -> Tensor:
        """Return what the experts of a layer make of the slots, (E, G, C, D)."""

    @abstractmethod
    def decode(self, slots_EGCD: Tensor, routing: Routing) -> Tensor:
        """Return for every token the weighted sum of what its experts made of it, (G, T, D)."""

    def begin_step(self) -> None:
        """Do what must be done before a step's forward; nothing by default."""

    def end_passes(self) -> None:
        """Do what must be done after a step's backward; nothing by default."""

    # The parts of a step

    def mixture(self, layer: int, h_GTD: Tensor, routing: Routing) -> Tensor:
        """Take tokens to their experts and back."""
        return self.decode(self.run_experts(layer, self.encode(h_GTD, routing)), routing)

    def make_optimizer(self) -> Optimizer:
        """Return the point's optimiser over what all ranks hold, and this rank's experts."""
        return self.task.optimizer([self.flat.parameter, *self.up_efD, *self.down_efD])

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Leave gradients of this rank's sequences, and of all ranks' tokens for its experts; return the loss."""
        self.begin_step()
        self.flat.gradients.zero_()
        for parameter in (*self.up_efD, *self.down_efD):
            # None and not zero: between steps an expert's gradient takes no memory; the flat vector's is held anyway.
            parameter.grad = None
        loss = loss_and_gradients(self.model, sequences_BS)
        self.end_passes()
        return loss

    def exchange_gradients(self, step: int) -> None:
        """Average what all ranks hold; an expert's gradient is a sum over ranks' means already."""
        self.ring.run(self.flat.gradients)
        for parameter in (*self.up_efD, *self.down_efD):
            assert parameter.grad is not None
            # Tokens of all ranks brought gradients of their ranks' mean losses; the batch's mean is 1/n.
            parameter.grad.div_(self.comm.world_size)

    # Around steps

    def shares(self) -> list[Share]:
        """Return this rank's parts of experts."""
        found = []
        for number, parameter, place in self._owned:
            part_fD = parameter.detach()[place]
            # A part of the hidden width is a run of rows, and so of memory: one share for each matrix.
            found.append((number, self.slice * part_fD.numel(), part_fD.reshape(-1)))
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what this rank holds and the optimiser's state of it."""
        return {
            "own": [p.detach().clone() for p in self._held()],
            "kept": {name: tensor.clone() for name, tensor in self.kept.items()},
            "optimizer": self.optimizer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what ``state_dict`` returned, on the same rank of as many.

        Raises:
            ValueError: The state is another technique's, model's or number of ranks'.
        """
        held = self._held()
        given = state.get("own", [])
        if [p.shape for p in given] != [p.shape for p in held] or set(self.kept) != set(state["kept"]):
            raise ValueError("the checkpoint does not fit this technique, model and number of ranks")
        with torch.no_grad():
            for parameter, value in zip(held, given, strict=True):
                parameter.copy_(value)
            for name, tensor in state["kept"].items():
                self.kept[name].copy_(tensor)
        self.optimizer.load_state_dict(state["optimizer"])

    def _held(self) -> list[nn.Parameter]:
        return [self.flat.parameter, *self.up_efD, *self.down_efD]

    def _take(self, numbers: dict[int, int], experts: nn.ModuleList, name: str) -> nn.Parameter:
        """Return this rank's parts of its experts' ``up`` or ``down`` in one tensor, (e, f, D)."""
        part = self.shape.hidden // self.slices
        first = self.group * self.num_own
        sources = [e.get_parameter(name) for e in list(experts.children())[first : first + self.num_own]]
        hidden = slice(self.slice * part, (self.slice + 1) * part)
        taken = nn.Parameter(torch.stack([p.detach()[hidden] for p in sources]))
        self._owned += [(numbers[id(p)], taken, place) for place, p in enumerate(sources)]
        return taken


def perceptrons(x_eND: Tensor, up_efD: Tensor, down_efD: Tensor) -> Tensor:
    """Return what experts make of N rows each, (e, N, D); of parts of their hidden widths the results add up.

    Args:
        x_eND: Rows, (e, N, D).
        up_efD: First products' weights, or parts of them, (e, f, D).
        down_efD: Second products' weights, laid out alike.
    """
    # GELU acts on single hidden features: a part of F works alone, and the last product sums over parts.
    return torch.bmm(torch.nn.functional.gelu(torch.bmm(x_eND, up_efD.mT)), down_efD)


def expert_cost(task: Task, of_layer: Callable[[Shape, int], tuple[int, int]]) -> Cost:
    """Return the cost of averaging what all ranks hold, and of a layer's experts in forward and backward.

    Args:
        task: The task.
        of_layer: Gives the bytes and messages that every rank sends for one layer in a step, by shape and step.
    """
    shape, size = shape_of(task), task.world_size
    if size == 1:
        return Cost(sent_bytes=0, peak_bytes=0, messages=0)
    # Experts' gradients are in no ring: their tokens, or gathered weights, are what travels for them.
    experts = shape.layers * shape.weight_bytes // ITEM
    chunks = [stop - start for start, stop in chunk_bounds(task.num_parameters - experts, size)]
    rings_sent = [rings.sent(chunks, rank) for rank in range(size)]
    dense_bytes = ITEM * max(elements for elements, _ in rings_sent)
    dense_messages = max(messages for _, messages in rings_sent)
    steps = [of_layer(shape, step) for step in range(task.steps)]
    return Cost(
        sent_bytes=sum(dense_bytes + shape.layers * nbytes for nbytes, _ in steps),
        peak_bytes=max(dense_bytes + shape.layers * nbytes for nbytes, _ in steps),
        messages=sum(dense_messages + shape.layers * messages for _, messages in steps),
    )
