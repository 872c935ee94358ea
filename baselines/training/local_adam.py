"""Local Adam: ranks take Adam's steps alone, then average parameters and both moments.

The method that Cheng and Glasgow analyse ("Convergence of Distributed Adaptive Optimization with Local Updates", ICLR
2025); beside mt-dao, whose exchanges are the same and whose momentum remembers longer.

Algorithm (g: a rank's own gradient):
1. In every step u ← β₁·u + (1 − β₁)·g, v ← β₂·v + (1 − β₂)·g², and θ ← θ − η·û/(√v̂ + ε); û and v̂ are divided by
   1 − βᵗ, as Adam's.
2. After H steps θ, u and v become their means over ranks.

Cost of a round: 3·2·(n − 1)/n · 4P bytes in 3·2·(n − 1) messages, three times local-sgd's.
Memory: u and v as Adam's, and scratch of 2/n · 4P.
Limits: with H = 1 it is not synchronous training: v is a mean of squares, and not the square of a mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.replica import BETAS, Comm, Cost, FlatReplica, Task, UnsupportedError
from paceline.families.training.api.rounds import ends_round, num_rounds

EPSILON = 1e-8
"""PyTorch's Adam."""


@technique(
    name="local-adam",
    family="training",
    implements=("data_parallel",),
    summary="H local steps of Adam, then the mean of parameters and both moments",
    properties={"exact": False, "replicas": "apart", "agree": "rounds"},
)
class LocalAdam(FlatReplica):
    """Own Adam over the flat vector, averaged with its moments at the end of each round."""

    beta = BETAS[0]

    def __init__(self, task: Task, comm: Comm, *, sync_every: int = 20) -> None:
        if task.optimizer_name != "adamw":
            raise UnsupportedError(f"it is Adam; the point asks for {task.optimizer_name}")
        super().__init__(task, comm)
        self.sync_every = sync_every
        self.momentum = self.register_state("momentum", torch.zeros_like(self.flat.values), kind="optimizer")
        self.variance = self.register_state("variance", torch.zeros_like(self.flat.values), kind="optimizer")
        self.ring = RingAverage(comm, self.flat.values.numel(), dtype=torch.float32, device=task.device)

    def direction(self, gradient: Tensor, step: int) -> Tensor:
        """Return what the step goes along before it is scaled: the momentum without the bias of its start at zero."""
        return self.momentum / (1 - self.beta ** (step + 1))

    def update(self, step: int) -> None:
        """Take Adam's step of this rank."""
        gradient = self.flat.gradients
        self.momentum.lerp_(gradient, 1 - self.beta)
        self.variance.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        direction = self.direction(gradient, step)
        # The gradient has been used: its vector is the scratch for √v̂ + ε.
        scale = torch.div(self.variance, 1 - BETAS[1] ** (step + 1), out=gradient).sqrt_().add_(EPSILON)
        self.flat.values.addcdiv_(direction, scale, value=-self.optimizer.param_groups[0]["lr"])

    def exchange_parameters(self, step: int) -> None:
        """Average parameters and moments when a round ends."""
        if ends_round(step, self.sync_every, self.task.steps):
            for vector in (self.flat.values, self.momentum, self.variance):
                self.ring.run(vector)


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return the header's formula for all rounds."""
    sent, messages = ring_cost(task.num_parameters, task.world_size)
    rounds = num_rounds(sync_every, task.steps)
    return Cost(sent_bytes=3 * rounds * sent, peak_bytes=3 * sent, messages=3 * rounds * messages)
