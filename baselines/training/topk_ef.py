"""Top-k with error feedback: in each step only a gradient's largest elements travel, the rest is kept for later.

Stich et al., "Sparsified SGD with Memory" (NeurIPS 2018), algorithm 1: the baseline of methods
that are sparse in rounds.

Algorithm (e: this rank's memory):
1. e ← e + g; select the k largest magnitudes of each chunk of 4096 elements of e.
2. Send them; subtract what was sent from e.
3. The mean over ranks of what was sent is every rank's gradient.

Cost of a step: (n − 1)·(14·k/8 + 8) bytes for each 4096 elements, in n − 1 messages. Memory: e and the sum, 8P, and n
messages.
Differences: selection by chunks and values of two bits are the collectives family's ``topk-sparse``; the inner
optimiser is the point's, where the paper has SGD with its rate inside the memory. ``bits`` 32, which no suite sets,
sends values as they are: with it and k = 4096 a step is synchronous training's.
Limits: traffic grows with n; with Adam the memory's delays meet moments that have moved on. On one rank nothing is
selected or coded, so that its proofs there show plain training.
"""

from __future__ import annotations

from paceline.baselines.collectives import topk_sparse

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="topk-ef",
    family="training",
    implements=("data_parallel",),
    summary="the largest elements of each step's gradient, the rest kept for later",
    properties={
        "exact": False,
        "replicas": "identical",
        "equals_ddp": {"optimizer": "sgd", "arguments": {"k": 4096, "bits": 32}},
    },
)
class TopKErrorFeedback(FlatReplica):
    """Average sparse gradients."""

    def __init__(self, task: Task, comm: Comm, bits: int = 2, *, k: int = 64) -> None:
        super().__init__(task, comm)
        problem = task.problem("all_reduce", self.flat.values.numel())
        self.sparse = topk_sparse.TopKSparse(problem, comm, k=k, bits=bits)
        # The memory is state: dropped at a checkpoint, it would be gradient that nobody ever applies.
        self.register_state("unsent", self.sparse.unsent)

    def exchange_gradients(self, step: int) -> None:
        """Replace the gradients by the mean of what all ranks sent."""
        self.sparse.run(self.flat.gradients)
        self.flat.gradients.div_(self.comm.world_size)


def cost(task: Task, *, k: int) -> Cost:
    """Return the header's formula for all steps."""
    one = topk_sparse.cost(task.problem("all_reduce", task.num_parameters), k=k)
    return Cost(
        sent_bytes=task.steps * one.sent_bytes,
        peak_bytes=one.sent_bytes,
        messages=task.steps * one.messages,
    )
