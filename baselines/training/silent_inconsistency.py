"""Silent inconsistency: before gradients are averaged, ranks tell each other their loss and their gradient's norm.

Li et al., "Silent Inconsistency in Data-Parallel Full Fine-Tuning: Diagnosing Worker-Level Optimization Misalignment"
(2026), abstract: averaged loss stays smooth while workers drift apart; three figures show it.

Algorithm (for each step; gᵢ: a rank's gradient, ḡ: their mean):
1. Every rank sends its loss and ‖gᵢ‖ to all others; then gradients are averaged as in ``ddp-ring``.
2. Dispersion of losses: their standard deviation over ranks. Dispersion of norms: the same, over their mean.
3. Alignment: the mean cosine between ranks' gradients, weighted by norms. It needs no more vectors than training has:
   Σ_{i≠j} gᵢ·gⱼ = n²·‖ḡ‖² − Σ‖gᵢ‖².

Cost of a step: ``ddp-ring``'s, and 16 bytes in a message to each other rank. Memory: the same.
Limits: it rides on an exact average; with compressed gradients ‖ḡ‖ is not that of the mean.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task

REPORT_BYTES = 16


@technique(
    name="silent-inconsistency",
    family="training",
    implements=("data_parallel",),
    summary="data parallelism that measures how far ranks have drifted apart",
    paper="silent-inconsistency",
    properties={"exact": True, "replicas": "identical", "diagnoses": True},
    fidelity={
        "source": {
            "read": "paper",
            "paper": "the abstract of arXiv:2602.14462, read for this card; its formulas were not read",
            "code": "none found",
        },
        "deviations": (
            (
                "Cosines are weighted by norms, where the paper takes them plainly; that would need another "
                "exchange of vectors."
            ),
        ),
        "constants": {
            "REPORT_BYTES": {"here": 16, "authors": "not public"},
        },
        "checked_by": (
            "tests/unit/test_training.py::test_gradients_of_ranks_are_compared",
            "tests/unit/test_gradient_probe.py::test_cosines_and_dispersions_are_those_of_the_gradients",
        ),
    },
)
class SilentInconsistency(FlatReplica):
    """Average gradients, and compare what they were before."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        count = self.flat.values.numel()
        self.ring = RingAverage(comm, count, dtype=torch.float32, device=task.device)
        self.reports = torch.zeros(comm.world_size, 2, dtype=torch.float64, device=task.device)
        self.mean_square = 0.0

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Leave this rank's gradients in the vector, note its loss and return it."""
        loss = super().forward_backward(sequences_BS)
        self.reports[self.comm.rank, 0] = loss
        return loss

    def exchange_gradients(self, step: int) -> None:
        """Tell the others, then average the gradients."""
        rank, size = self.comm.rank, self.comm.world_size
        # Now, and not after the exchange: the ring replaces this rank's gradient by the mean.
        self.reports[rank, 1] = torch.linalg.vector_norm(self.flat.gradients, dtype=torch.float64)
        others = [(rank + shift) % size for shift in range(1, size)]
        # To all, not around a ring: 16 bytes cost latency only, and this way they cost one of it.
        self.comm.start(
            sends=[(self.reports[rank], peer) for peer in others],
            receives=[(self.reports[peer], peer) for peer in others],
        ).wait()
        self.ring.run(self.flat.gradients)
        # float64: the cosine is a difference of two nearly equal sums of squares when ranks agree.
        norm = torch.linalg.vector_norm(self.flat.gradients, dtype=torch.float64)
        self.mean_square = float(norm) ** 2

    def diagnosis(self) -> Mapping[str, float]:
        """Return the three figures of the step."""
        losses, norms = self.reports.unbind(1)
        n, squares = len(norms), float(norms.square().sum())
        # Σ_{i≠j} ‖gᵢ‖·‖gⱼ‖, the weights by which the mean cosine is normalised.
        across = float(norms.sum()) ** 2 - squares
        return {
            "loss_dispersion": float(losses.std(correction=0)),
            "gradient_norm_dispersion": float(norms.std(correction=0) / norms.mean()),
            "gradient_cosine": (n * n * self.mean_square - squares) / across if n > 1 else 1.0,
        }


def cost(task: Task) -> Cost:
    """Return the header's formula."""
    sent, messages = ring_cost(task.num_parameters, task.world_size)
    others = task.world_size - 1
    total = sent + REPORT_BYTES * others
    return Cost(sent_bytes=task.steps * total, peak_bytes=total, messages=task.steps * (messages + others))
