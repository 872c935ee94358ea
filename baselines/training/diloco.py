"""DiLoCo: H local steps of AdamW, then one outer step of Nesterov momentum on the mean displacement.

Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models" (2023), algorithm 1; outer
settings of section 3.1 (learning rate 0.7, momentum 0.9).

Algorithm (φ: global weights, equal everywhere; θ: a replica's):
1. θ ← φ; every replica takes H inner steps on its own data.
2. Δ ← mean over replicas of φ − θ, the outer gradient.
3. m ← μ·m + Δ; φ ← φ − η·(Δ + μ·m), Nesterov's step. Inner optimisers keep their moments.

Cost of a round: 2·(n − 1)/n · 4P bytes in 2·(n − 1) messages, 1/H of synchronous training's. Memory: φ and m, 8P, and
scratch of 2/n · 4P for the ring. A rank that comes back is sent φ and m, and begins at φ.
Limits: the round's end blocks; nothing is overlapped (``streaming-diloco`` does).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.absence import ring_bytes, welcome
from paceline.families.training.api.exchange import RingAverage
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.rounds import ends_round, nesterov_, round_ends


@technique(
    name="diloco",
    family="training",
    implements=("data_parallel",),
    summary="H local steps, then Nesterov momentum on the mean displacement",
    paper="diloco",
    properties={
        "exact": False,
        "replicas": "identical",
        "agree": "rounds",
        "equals_ddp": {
            "optimizer": "sgd",
            "arguments": {"sync_every": 1, "outer_rate": 1.0, "outer_momentum": 0.0},
        },
        "elastic": True,
    },
    fidelity={
        "source": {
            "read": "reimplementation",
            "paper": "algorithm 1 and section 3.1 by the header, not read for this card",
            "code": "none by the authors; github.com/PrimeIntellect-ai/OpenDiloco: open_diloco/train_fsdp.py",
        },
        "deviations": (
            "A last, shorter round is synchronised like the others.",
            "Rounds are 20 steps by default, where the others' have 500.",
            "Gradients are not clipped, as in all of this family; OpenDiLoCo clips them to a norm of 1.",
        ),
        "constants": {
            "sync_every": {
                "here": 20,
                "authors": "500, the default of OpenDiLoCo",
                "official": 500,
                "source": "github.com/PrimeIntellect-ai/OpenDiloco: open_diloco/train_fsdp.py (a reimplementation)",
                "differs": "rounds are 20 steps, since runs have fewer",
            },
            "outer_rate": {
                "here": 0.7,
                "authors": "0.7, OpenDiLoCo too",
                "official": 0.7,
                "source": "github.com/PrimeIntellect-ai/OpenDiloco: open_diloco/train_fsdp.py (a reimplementation)",
            },
            "outer_momentum": {
                "here": 0.9,
                "authors": "0.9 with Nesterov's step, OpenDiLoCo too",
                "official": 0.9,
                "source": "github.com/PrimeIntellect-ai/OpenDiloco: open_diloco/train_fsdp.py (a reimplementation)",
            },
        },
        "checked_by": (
            "tests/unit/test_outer_steps.py::test_an_outer_step_is_nesterovs_on_the_mean_displacement",
            "tests/unit/test_training.py::test_the_outer_step_is_nesterovs",
        ),
    },
)
class DiLoCo(FlatReplica):
    """Exchange outer gradients at the end of each round; what is shipped are the global weights."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        sync_every: int = 20,
        outer_rate: float = 0.7,
        outer_momentum: float = 0.9,
    ) -> None:
        super().__init__(task, comm)
        self.sync_every, self.outer_rate, self.outer_momentum = sync_every, outer_rate, outer_momentum
        self.slow = self.register_state("slow", self.flat.values.clone())
        self.momentum = self.register_state("momentum", torch.zeros_like(self.slow))
        self.ring = self._ring(self.members)

    def _ring(self, members: Sequence[int]) -> RingAverage:
        count, device = self.slow.numel(), self.task.device
        return RingAverage(self.comm, count, dtype=torch.float32, device=device, members=members)

    def exchange_parameters(self, step: int) -> None:
        """Take the outer step when a round ends."""
        if not ends_round(step, self.sync_every, self.task.steps):
            return
        outer = self.flat.gradients  # free until the next backward
        torch.sub(self.slow, self.flat.values, out=outer)
        # Adam's moments stay with their replica: averaging both as well would triple the bytes.
        self.ring.run(outer)
        nesterov_(self.slow, self.momentum, outer, rate=self.outer_rate, momentum_share=self.outer_momentum)
        self.flat.values.copy_(self.slow)

    def change_members(self, step: int, members: tuple[int, ...]) -> None:
        """Average over those who are there; who comes back takes up the global weights and their momentum."""
        before, self.members = self.members, members
        if self.comm.rank in members:
            welcome(self.comm, before, members, [self.slow, self.momentum])
            self.ring = self._ring(members)
            # The newcomer's θ is as old as its leave; its displacement from the new φ would pull the others back.
            if self.comm.rank not in before:
                self.flat.values.copy_(self.slow)

    def weights(self) -> list[Tensor]:
        """Return the global weights, which a round leaves untouched until it ends."""
        return self.flat.pieces(self.slow)


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return the header's formula for all rounds."""
    sent, peak, messages = ring_bytes(
        world_size=task.world_size,
        steps=task.steps,
        exchanges=round_ends(sync_every, task.steps),
        count=task.num_parameters,
        absence=task.absence,
        welcome_bytes=2 * 4 * task.num_parameters,
        welcome_messages=2,
    )
    # Beside its replica it keeps the global weights and the outer momentum.
    state = task.whole_state_bytes + 2 * 4 * task.num_parameters
    return Cost(sent_bytes=sent, peak_bytes=peak, messages=messages, state_bytes=state)
