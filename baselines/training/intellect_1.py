"""INTELLECT-1: DiLoCo whose outer gradients travel as 8-bit codes.

INTELLECT-1 Technical Report (Prime Intellect, 2024): the PRIME framework's outer step with its int8 ring all-reduce.

Algorithm (φ: global weights; θ: a replica's):
1. θ ← φ; H inner steps of AdamW on each replica's own data.
2. Δ ← mean over replicas of φ − θ through the collectives family's ``int8-ring``: codes and a codebook on the wire,
   sums in fp32.
3. Nesterov's outer step on φ, as in ``diloco``.

Cost of a round: 2·(n − 1)/n · P bytes and 1024 bytes of codebook in each of 2·(n − 1) messages: a quarter of DiLoCo's.
Memory: φ and m, 8P, two messages and a chunk.
Limits: those of the codec: values beyond 6σ share a code. On one rank nothing is coded, so that its proofs there show
DiLoCo.
"""

from __future__ import annotations

import torch
from paceline.baselines.collectives import int8_ring
from torch import Tensor

from paceline import technique
from paceline.families.training.api.exchange import RingAverage
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.rounds import ends_round, nesterov_, num_rounds


@technique(
    name="intellect-1",
    family="training",
    implements=("data_parallel",),
    summary="DiLoCo with outer gradients as 8-bit codes",
    paper="intellect-1",
    properties={
        "exact": False,
        "replicas": "identical",
        "agree": "rounds",
        "equals_ddp": {
            "optimizer": "sgd",
            "arguments": {"sync_every": 1, "outer_rate": 1.0, "outer_momentum": 0.0, "bits": 32},
        },
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "the outer step by the header, not read for this card",
            "code": "github.com/PrimeIntellect-ai/prime: src/zeroband/diloco.py, src/zeroband/C/csrc/collectives.cpp",
        },
        "deviations": (
            "One replica is one rank, not a node that shards its replica.",
            "Nobody joins or leaves; ``elastic-diloco`` shows that part.",
            "Codes are those of ``int8-ring``, whose buckets are twice as wide as those of the authors' code.",
            "Parameters travel as one vector; the authors reduce groups of tensors, several at a time.",
            (
                "``bits`` 32, which no suite sets, takes a plain ring: with it, H = 1, an outer rate of 1, no "
                "momentum and plain SGD it equals synchronous training."
            ),
        ),
        "constants": {
            "sync_every": {"here": 20, "authors": "100 by the ledger"},
            "outer_rate": {"here": 0.7, "authors": "a setting, its default was not read"},
            "outer_momentum": {"here": 0.9, "authors": "0.9 with Nesterov's step, diloco.py"},
        },
        "checked_by": (
            "tests/unit/test_outer_steps.py::test_eight_bits_change_the_mean_displacement_by_their_rounding_alone",
        ),
    },
)
class Intellect1(FlatReplica):
    """DiLoCo's rounds on an 8-bit ring."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        bits: int = 8,
        *,
        sync_every: int = 20,
        outer_rate: float = 0.7,
        outer_momentum: float = 0.9,
    ) -> None:
        super().__init__(task, comm)
        self.sync_every, self.outer_rate, self.outer_momentum = sync_every, outer_rate, outer_momentum
        self.slow = self.register_state("slow", self.flat.values.clone())
        self.momentum = self.register_state("momentum", torch.zeros_like(self.slow))
        count = self.slow.numel()
        self.coded: int8_ring.Int8Ring | None = None
        # bits stands before the *: an argument for the proof against synchronous training, no suite's option.
        if bits == 8:
            self.coded = int8_ring.Int8Ring(task.problem("all_reduce", count), comm)
        else:
            self.plain = RingAverage(comm, count, dtype=torch.float32, device=task.device)

    def exchange_parameters(self, step: int) -> None:
        """Take the outer step when a round ends."""
        if not ends_round(step, self.sync_every, self.task.steps):
            return
        outer = torch.sub(self.slow, self.flat.values, out=self.flat.gradients)
        if self.coded is not None:
            self.coded.run(outer)
            # The coded ring returns the sum, as collectives do; RingAverage below divides by itself.
            outer.div_(self.comm.world_size)
        else:
            self.plain.run(outer)
        nesterov_(self.slow, self.momentum, outer, rate=self.outer_rate, momentum_share=self.outer_momentum)
        self.flat.values.copy_(self.slow)

    def weights(self) -> list[Tensor]:
        """Return the global weights."""
        return self.flat.pieces(self.slow)


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return the header's formula for all rounds."""
    one = int8_ring.cost(task.problem("all_reduce", task.num_parameters))
    rounds = num_rounds(sync_every, task.steps)
    return Cost(sent_bytes=rounds * one.sent_bytes, peak_bytes=one.sent_bytes, messages=rounds * one.messages)
