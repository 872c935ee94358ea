"""The contract of training techniques: what one rank's side of training may change.

Ranks read parts of a step's sequences (``data_parallel``), or all of them where they share a model's layers or the
sequences' positions (``pipeline_parallel``, ``sequence_parallel``). In ``fine_tune`` they read parts, and the model is
a trained one of which few parameters go on (``requires_grad``).
The family owns the loop. It draws the batches, sets the learning rate, calls the four parts of a step below in their
order, times them, copies weights for evaluation, and counts bytes. A technique is a class that derives from
``Replica`` (or ``FlatReplica``) and overrides the parts that it changes::

    forward_backward → exchange_gradients → update → exchange_parameters

Its module may define ``cost(task, *, …) -> Cost | None`` of the options that it names: the closed form of what
a run sends and a rank holds.

Properties in ``@technique``: ``exact`` (every step equals one process that trains on the whole batch), ``inexact_with``
(options under which it does not, since they round), ``replicas`` (``identical``: equal shipped weights on all ranks;
``apart``: they may differ), ``agree`` (when ranks' own models hold the same weights, see below), ``bitwise`` (False: a
run taken up from a checkpoint is only close to one that was not interrupted), ``equals_ddp`` (``optimizer`` and
``arguments`` under which it equals synchronous training, some of which need not be options; ``max_ranks`` up to which;
``late``: what a step gave is shipped one step later), ``unbiased_with`` (arguments under which the mean of many steps
of plain SGD is synchronous training's), ``diagnoses`` (``diagnosis`` returns figures, which are proved), ``elastic``
(ranks may leave and come back, by agreement between steps).

``agree`` is about the models that ranks train, whatever they would ship, where each step takes its gradients and after
the end: ``always`` the same; the same at the beginning of every round of ``sync_every`` steps and all different in
between (``rounds``); so for rounds that ``round_ends`` lists (``own-rounds``); so in pairs of ranks (``pairs``), or so
until all are the same after the end (``pairs-then-all``); or ``never`` after the first step. By default ``always``
where ``replicas`` are identical, else ``never``. Where ranks share a model's parameters there is nothing to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.families.collectives.api.problem import Problem
from paceline.families.training.api.absence import Absence
from paceline.families.training.api.flat import Flat
from paceline.families.training.api.model import loss_and_gradients
from paceline.families.training.api.router import Router
from paceline.families.training.api.storage import Storage
from paceline.worker.communication.comm import Comm
from paceline.worker.ranks.session import UnsupportedError

__all__ = ["BETAS", "Comm", "Cost", "FlatReplica", "Replica", "Share", "Task", "UnsupportedError"]

FINAL_RATE = 0.1
"""Share of the peak learning rate at the end of the cosine."""
BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Closed forms of a whole run; what is None is not stated. Bytes are payload bytes without transport headers.

    What is stated must be measured: bytes that nobody counts are refused.
    """

    sent_bytes: float | None = None
    """Sent by the busiest rank; not with backends' own collectives, whose messages nobody counts."""
    peak_bytes: float | None = None
    """Sent by the busiest rank in the step in which it sends most."""
    messages: float | None = None
    """Sent by the busiest rank."""
    backend_bytes: float | None = None
    """Handed to the backend's own collectives by the rank that hands over most, whatever travels for it."""
    state_bytes: float | None = None
    """Parameters, gradients, state of the optimiser and what is kept beside it, on the rank that holds most."""
    scratch_bytes: float | None = None
    """Held beside all state and the model's own tables: without it, state could hide among buffers."""


Share = tuple[int, int, Tensor]
"""Number of a parameter in the model's order, first element in it, and the elements from there, flat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a rank trains."""

    model: nn.Module
    """Equal weights on all ranks, not yet trained."""
    rank: int
    world_size: int
    device: torch.device
    seed: int
    """Equal on all ranks; for schedules and random numbers that techniques share."""
    steps: int
    optimizer_name: str
    peak_rate: float
    warmup_steps: int
    microbatches: int = 1
    """Parts in which a pipeline works through a step's sequences."""
    tokens: int = 0
    """Symbols that a step predicts, over all ranks."""
    context: int = 0
    """Positions of a sequence."""
    num_perturbations: int = 1
    """Directions along which a rank measures the slope of the loss in one step, each on a part of its sequences."""
    epsilon: float = 0.0
    """How far along a direction, of standard normal elements, the loss is measured."""
    router: Router | None = None
    """Where tokens go at inference, and routes to learn from; None where the model's gates decide."""
    storage: Storage | None = None
    """Where checkpoints are written to; None where there are none."""
    absence: Absence | None = None
    """Who is away when, for closed forms alone: who trains is told when it happens (``change_members``)."""

    @property
    def num_parameters(self) -> int:
        """P: those that are trained."""
        return sum(p.numel() for p in self.model.parameters() if p.requires_grad)

    @property
    def moment_bytes(self) -> int:
        """What the inner optimiser keeps of one parameter: two moments with Adam, nothing with plain SGD."""
        return 8 if self.optimizer_name == "adamw" else 0

    @property
    def whole_state_bytes(self) -> int:
        """State of a rank that shares none: all parameters, and gradients and moments of those that are trained."""
        held = sum(p.numel() for p in self.model.parameters())
        return 4 * held + (4 + self.moment_bytes) * self.num_parameters

    def rate(self, step: int) -> float:
        """Return the learning rate of a step: linear warm-up, then a cosine to a tenth of the peak."""
        if step < self.warmup_steps:
            return self.peak_rate * (step + 1) / self.warmup_steps
        # By the point's steps and not by the technique's: all techniques of a block follow one schedule.
        done = (step - self.warmup_steps) / max(self.steps - self.warmup_steps, 1)
        falling = 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        return self.peak_rate * (FINAL_RATE + (1 - FINAL_RATE) * falling)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return the point's inner optimiser over some parameters."""
        if self.optimizer_name == "sgd":
            # Without momentum: plain SGD is the optimiser under which averaging weights and averaging gradients agree.
            return torch.optim.SGD(parameters, lr=self.peak_rate)
        # fused: one pass over the vector on every device; the oracle's process uses the same one.
        return torch.optim.AdamW(
            parameters, lr=self.peak_rate, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
        )

    def problem(self, operation: str, count: int, dtype: torch.dtype = torch.float32) -> Problem:
        """Return a problem of the collectives family, for techniques that build on one of its own."""
        return Problem(
            operation=operation,
            rank=self.rank,
            world_size=self.world_size,
            dtype=dtype,
            device=self.device,
            count=count,
            seed=self.seed % (1 << 31),
        )


class Replica:
    """One rank's side of training without any exchange; techniques override what they change.

    State that must survive a checkpoint is given to ``register_state`` (random generators to ``generators``);
    everything else may be rebuilt by ``__init__``.
    """

    def __init__(self, task: Task, comm: Comm) -> None:
        self.task = task
        self.comm = comm
        self.model = task.model
        self.members: Sequence[int] = tuple(range(task.world_size))
        """Ranks that take part."""
        self.kept: dict[str, Tensor] = {}
        self.kept_as: dict[str, str] = {}
        self.generators: dict[str, torch.Generator] = {}
        self.owned: list[nn.Parameter] = []
        """Shares of the model's parameters, with storages or gradients that neither it nor the optimiser may have."""
        # Last: techniques lay out vectors and shares before they call this, and the optimiser must see those.
        self.optimizer = self.make_optimizer()

    def make_optimizer(self) -> Optimizer:
        """Return what ``update`` steps."""
        return self.task.optimizer(self.model.parameters())

    def register_state(
        self, name: str, tensor: Tensor, *, kind: Literal["extra", "optimizer"] = "extra"
    ) -> Tensor:
        """Let checkpoints hold a tensor, and return it; it is counted as the optimiser's or as ``extra_bytes``."""
        self.kept[name], self.kept_as[name] = tensor, kind
        return tensor

    def set_rate(self, rate: float) -> None:
        """Set the inner optimiser's learning rate for the coming step."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    # The parts of a step

    def rests(self, step: int) -> bool:
        """Tell, before a step, whether this rank leaves it out of its own accord; its tokens do not count then.

        Of such a step ``exchange_parameters`` is called alone. Techniques whose rounds end by time override it.
        """
        return False

    def forward_backward(self, sequences_BS: Tensor) -> Tensor | None:
        """Leave this rank's gradients in the parameters and return its loss, if it lies here."""
        self.optimizer.zero_grad(set_to_none=True)
        return loss_and_gradients(self.model, sequences_BS)

    def exchange_gradients(self, step: int) -> None:
        """Make the gradients what ``update`` needs; nothing by default."""

    def update(self, step: int) -> None:
        """Apply the gradients."""
        self.optimizer.step()

    def exchange_parameters(self, step: int) -> None:
        """Exchange or replace parameters after the update; nothing by default."""

    def change_members(self, step: int, members: tuple[int, ...]) -> None:
        """Go on with other ranks from a step on; it is called on all, also on those that leave or come back.

        Techniques with ``elastic`` override it.
        """
        raise UnsupportedError("its ranks cannot leave or join")

    # Around steps

    def finish(self) -> None:
        """Complete what is under way after the last step."""

    def pause(self) -> None:
        """Wait for transfers that are under way and change nothing else, so that state can be saved."""

    def weights(self) -> list[Tensor]:
        """Return the weights that would be shipped now, in the order of the model's parameters."""
        return [p.detach() for p in self.model.parameters()]

    def diagnosis(self) -> Mapping[str, float]:
        """Return what it found out about ranks in the step just done; the same on all of them. Nothing by default.

        ``loss_dispersion``, ``gradient_norm_dispersion`` and ``gradient_cosine``, as the metrics define them.
        """
        return {}

    def round_ends(self) -> Sequence[int]:
        """Return the steps with which rounds end, where ``agree`` is ``own-rounds``; none by default."""
        return ()

    def shares(self) -> list[Share] | None:
        """Return what this rank owns of the weights where no rank has them all; the harness gathers them."""
        return None

    own_gradients = True
    """Whether parameters hold this rank's own gradients between ``forward_backward`` and ``exchange_gradients``; where
    backward exchanges them already, the harness catches them on their way (``gradient_probe``)."""
    common: Sequence[int] = ()
    """Numbers of the parameters that every rank holds in whole beside its shares."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a later process needs to go on."""
        return {
            "weights": [p.detach().clone() for p in self.model.parameters()],
            "optimizer": self.optimizer.state_dict(),
            "kept": {name: tensor.clone() for name, tensor in self.kept.items()},
            "generators": {name: g.get_state() for name, g in self.generators.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what ``state_dict`` returned, on a replica that was just made.

        Raises:
            ValueError: The state is another technique's or another model's.
        """
        own, given = list(self.model.parameters()), state["weights"]
        # Checked before anything is copied: a checkpoint that does not fit leaves the replica as it was.
        if [p.shape for p in own] != [w.shape for w in given] or set(self.kept) != set(state["kept"]):
            raise ValueError("the checkpoint does not fit this technique and model")
        with torch.no_grad():
            for parameter, weight in zip(own, given, strict=True):
                parameter.copy_(weight)
            for name, tensor in state["kept"].items():
                self.kept[name].copy_(tensor)
        for name, generator in state["generators"].items():
            self.generators[name].set_state(generator)
        # After the weights: moments are made for the parameters that are there.
        self.optimizer.load_state_dict(state["optimizer"])


class FlatReplica(Replica):
    """A replica whose parameters and gradients are one vector each.

    Attributes:
        flat: ``flat.parameter`` is the vector of parameters, ``flat.gradients`` that of gradients, ``flat.bounds``
            (start, stop) of each parameter in both; the model's own parameters and gradients are views of them.
    """

    def __init__(self, task: Task, comm: Comm) -> None:
        # Before super().__init__, whose optimiser steps the one vector.
        self.flat = Flat(task.model)
        super().__init__(task, comm)

    def make_optimizer(self) -> Optimizer:
        """Return the point's optimiser over the one vector."""
        return self.task.optimizer([self.flat.parameter])

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Leave this rank's gradients in the vector and return its loss."""
        # Zeroed in place: parameters' gradients are views of this vector, and must stay so.
        self.flat.gradients.zero_()
        return loss_and_gradients(self.model, sequences_BS)
