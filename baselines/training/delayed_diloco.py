"""DiLoCo whose mean displacement travels during the next round, and is applied when it has arrived: one round late.

Kale et al., 2025, "Eager Updates For Overlapped Communication and Computation in DiLoCo" (arXiv:2502.12996): the plain
form, which eager-updates improves.

Algorithm (φ: global weights, equal everywhere; θ: a replica's; round t starts from φₜ):
1. H local steps from φₜ give θ; Δₜ = φₜ − θ sets out around a ring, its messages spread evenly over round t + 1.
2. When round t ends, the mean D of Δₜ₋₁ has arrived: m ← μ·m + D; φₜ₊₁ = φₜ − η·(D + μ·m), Nesterov's step.

Cost of a round: 2·(n − 1)/n · 4P bytes in 2·(n − 1) messages, none of it waited for when all of them take no longer
than the H steps. Memory: φ, m and the travelling Δ, 12P, and scratch of 2/n · 4P for the ring.
Limits: the first two rounds start from the same weights, so that a large momentum overshoots at first: with 0.6 one
rank learns nothing in the 66 steps of conformance, which is why 0.3 is the default. After the last round one more outer
step takes what travels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, late_ring_cost
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.rounds import ends_round, nesterov_


@technique(
    name="delayed-diloco",
    family="training",
    implements=("data_parallel",),
    summary="DiLoCo whose outer steps are one round late, hidden behind the next round",
    properties={"exact": False, "replicas": "identical", "agree": "rounds"},
)
class DelayedDiLoCo(FlatReplica):
    """Take outer steps one round late; what is shipped are the weights that rounds start from."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        sync_every: int = 20,
        outer_rate: float = 0.7,
        outer_momentum: float = 0.3,
    ) -> None:
        super().__init__(task, comm)
        self.sync_every, self.outer_rate, self.outer_momentum = sync_every, outer_rate, outer_momentum
        self.slow = self.register_state("slow", self.flat.values.clone())
        self.momentum = self.register_state("momentum", torch.zeros_like(self.slow))
        self.outer = self.register_state("outer", torch.zeros_like(self.slow))
        """The displacement that travels, or its mean once it has arrived."""
        self.late = self.register_state("late", torch.zeros(1, dtype=torch.bool))
        """Whether there is one."""
        self.ring = RingAverage(comm, len(self.slow), dtype=torch.float32, device=task.device)

    def exchange_parameters(self, step: int) -> None:
        """Pass on what is due of what travels; when a round ends, take an outer step and send what the round gave."""
        self.ring.advance(step % self.sync_every + 1, self.sync_every)
        if not ends_round(step, self.sync_every, self.task.steps):
            return
        # From where the round began: the outer step moves φ on.
        fresh = self.flat.gradients  # free until the next backward
        torch.sub(self.slow, self.flat.values, out=fresh)
        self.ring.complete()
        self.step_outer(fresh)
        self.outer.copy_(fresh)
        self.ring.begin(self.outer)
        self.late.fill_(True)
        self.flat.values.copy_(self.slow)

    def step_outer(self, fresh: Tensor | None) -> None:
        """Take the outer step of what has arrived, which it may use up.

        Args:
            fresh: What the round that ends has given here, to be left as it is; None after the last round.
        """
        if self.late:
            self.nesterov()

    def nesterov(self) -> None:
        """Step along ``outer``."""
        nesterov_(
            self.slow, self.momentum, self.outer, rate=self.outer_rate, momentum_share=self.outer_momentum
        )

    def finish(self) -> None:
        """Apply what the last round has sent."""
        self.ring.complete()
        self.step_outer(None)
        self.late.fill_(False)
        self.flat.values.copy_(self.slow)

    def pause(self) -> None:
        """Let what travels arrive; it is applied when it is due."""
        self.ring.complete()

    def weights(self) -> list[Tensor]:
        """Return the weights that the round has begun from."""
        return self.flat.pieces(self.slow)


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return the header's formula for all rounds; the last step sends a whole round's, and what the round before left.

    Args:
        task: The task.
        sync_every: H.
    """
    sent, peak, messages = late_ring_cost(task.num_parameters, task.world_size, task.steps, sync_every)
    return Cost(sent_bytes=sent, peak_bytes=peak, messages=messages)
