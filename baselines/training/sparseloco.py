"""SparseLoCo: H local steps; of the displacement only the few largest elements travel, the rest waits its turn.

Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo" (2025), algorithm 1.

Algorithm (φ: global weights; θ: a replica's; e: its accumulator):
1. θ ← φ; H inner steps of AdamW on each replica's own data.
2. e ← β·e + (φ − θ); select the k largest magnitudes of each chunk of 4096 elements of e; send them as 12-bit indices
   and 2-bit values; subtract what was sent from e.
3. φ ← φ − η · mean over replicas of what they sent. The decayed accumulator stands in for the outer momentum.

Cost of a round: (n − 1)·(14·k/8 + 8) bytes for each 4096 elements, in n − 1 messages. With k = 64 (1.6 %) that is
(n − 1) · 4P/137. Memory: φ, e and the sum, 12P, and n messages.
Limits: traffic grows with n, since ranks gather each other's messages. On one rank nothing is selected or coded, so
that its proofs there show local steps alone.
"""

from __future__ import annotations

from typing import Literal

import torch
from paceline.baselines.collectives import topk_sparse
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.rounds import ends_round, num_rounds


@technique(
    name="sparseloco",
    family="training",
    implements=("data_parallel",),
    summary="H local steps, then the largest elements of a decayed accumulator in 14 bits each",
    paper="sparseloco",
    properties={
        "exact": False,
        "replicas": "identical",
        "agree": "rounds",
        "equals_ddp": {"optimizer": "sgd", "arguments": {"sync_every": 1, "k": 4096, "bits": 32}},
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "algorithm 1 by the header; the abstract, read for this card",
            "code": (
                "github.com/tplr-ai/templar (the authors' network): src/tplr/compress.py, src/tplr/neurons.py, "
                "hparams/hparams.json"
            ),
        },
        "deviations": (
            (
                "Accumulator, selection and codec are those of ``topk-sparse``, whose two levels of a chunk are "
                "not the authors' four buckets of a tensor."
            ),
            "Chunks cross tensors; the authors' are tiles of 64 × 64 of each tensor.",
            (
                "What was sent is divided by the number of replicas, as the header's algorithm says; the authors' "
                "code divides by how many of them sent an element, as ``mean_over: senders`` does."
            ),
            (
                "``bits`` 32, which no suite sets, sends values as they are: with it, k = 4096, H = 1 and plain "
                "SGD it equals synchronous training."
            ),
        ),
        "constants": {
            "sync_every": {
                "here": 20,
                "authors": "30 (inner_steps), hparams.json",
                "official": 30,
                "source": "github.com/tplr-ai/templar: hparams/hparams.json",
                "differs": "rounds are shorter, since runs have fewer steps",
            },
            "outer_rate": {
                "here": 1.0,
                "authors": "1.0, hparams.json",
                "official": 1.0,
                "source": "github.com/tplr-ai/templar: hparams/hparams.json",
            },
            "decay": {
                "here": 0.95,
                "authors": "0.95 (momentum_decay), hparams.json",
                "official": 0.95,
                "source": "github.com/tplr-ai/templar: hparams/hparams.json",
            },
            "k": {
                "here": 64,
                "authors": "64 (topk_compression), hparams.json",
                "official": 64,
                "source": "github.com/tplr-ai/templar: hparams/hparams.json",
            },
            "mean_over": {
                "here": "ranks",
                "authors": "senders, compress.py",
                "official": "senders",
                "source": "github.com/tplr-ai/templar: src/tplr/compress.py",
                "differs": "the paper divides by the number of replicas; mean_over: senders does as the code",
            },
        },
        "checked_by": (
            "tests/unit/test_outer_steps.py::test_the_largest_of_a_decayed_accumulator_are_sent_and_taken_out_of_it",
        ),
    },
)
class SparseLoCo(FlatReplica):
    """DiLoCo's rounds with a sparse exchange and no outer momentum."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        bits: int = 2,
        *,
        sync_every: int = 20,
        outer_rate: float = 1.0,
        decay: float = 0.95,
        k: int = 64,
        mean_over: Literal["ranks", "senders"] = "ranks",
    ) -> None:
        super().__init__(task, comm)
        self.sync_every, self.outer_rate = sync_every, outer_rate
        # One rank exchanges nothing, and its own displacement is the mean of both kinds.
        self.divisor = comm.world_size if mean_over == "ranks" else 1
        self.slow = self.register_state("slow", self.flat.values.clone())
        problem = task.problem("all_reduce", self.slow.numel())
        self.sparse = topk_sparse.TopKSparse(problem, comm, bits, mean_over == "senders", k=k, decay=decay)
        # The accumulator is state: it stands in for the outer momentum, and holds what has not been sent yet.
        self.register_state("unsent", self.sparse.unsent)

    def exchange_parameters(self, step: int) -> None:
        """Take the outer step when a round ends."""
        if not ends_round(step, self.sync_every, self.task.steps):
            return
        # The exchange overwrites it by what ranks sent, which needs no copy of the gradients' vector.
        outer = torch.sub(self.slow, self.flat.values, out=self.flat.gradients)
        self.sparse.run(outer)
        # Of a sum 1/n. There is no momentum: e decays by β and carries the past (algorithm 1).
        self.slow.sub_(outer, alpha=self.outer_rate / self.divisor)
        self.flat.values.copy_(self.slow)

    def weights(self) -> list[Tensor]:
        """Return the global weights."""
        return self.flat.pieces(self.slow)


def cost(task: Task, *, sync_every: int, k: int) -> Cost:
    """Return the header's formula for all rounds."""
    one = topk_sparse.cost(task.problem("all_reduce", task.num_parameters), k=k)
    rounds = num_rounds(sync_every, task.steps)
    return Cost(sent_bytes=rounds * one.sent_bytes, peak_bytes=one.sent_bytes, messages=rounds * one.messages)
