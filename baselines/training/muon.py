"""Muon: gradients are averaged whole, and layers' matrices move along the orthogonal matrix nearest their momentum.

Jordan et al., 2024, "Muon: An optimizer for hidden layers in neural networks"; beside dion, what it saves bytes of.

Algorithm, of each matrix of a layer (G: the averaged gradient, M: its momentum):
1. M ← μ·M + G, and U = G + μ·M.
2. O: U over its Frobenius norm, after five steps of X ← a·X + b·(X·Xᵀ)·X + c·(X·Xᵀ)²·X, which bring all singular
   values near 1.
3. θ ← θ − f·η·√(rows/columns)·O; f: ``rate_factor``.
Embedding, head and vectors are the point's optimiser's.

Cost of a step: a ring average of the gradients, as ddp-ring. Memory: M, 4 bytes an element of matrices; Adam keeps 8.
Limits: every rank computes every orthogonal matrix; the authors' later versions share them out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.matrices import MatrixReplica
from paceline.families.training.api.replica import Comm, Cost, Task

STEPS = 5
A, B, C = 3.4445, -4.7750, 2.0315
"""Of the odd polynomial: its slope at 0 is large, and what is near 1 stays within 0.7 and 1.2 (Jordan et al.)."""


def orthogonal(matrix: Tensor) -> Tensor:
    """Return a matrix with the same singular vectors whose singular values are near 1.

    Args:
        matrix: Any shape; one of zeros stays as it is.
    """
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    found = wide / (wide.norm() + 1e-7)
    for _ in range(STEPS):
        square = found @ found.T
        found = A * found + (B * square + C * square @ square) @ found
    back: Tensor = found if wide is matrix else found.T
    return back


@technique(
    name="muon",
    family="training",
    implements=("data_parallel",),
    summary="whole gradients, and orthogonal steps of layers' matrices",
    properties={"exact": False, "replicas": "identical"},
)
class Muon(MatrixReplica):
    """Average, then make the momenta orthogonal."""

    def __init__(self, task: Task, comm: Comm, *, decay: float = 0.95, rate_factor: float = 1.0) -> None:
        super().__init__(task, comm, rate_factor=rate_factor)
        self.decay = decay
        self.momentum = self.register_state("momentum", torch.zeros_like(self.flat.values), kind="optimizer")
        self.ring = RingAverage(comm, self.flat.values.numel(), dtype=torch.float32, device=task.device)

    def exchange_gradients(self, step: int) -> None:
        """Average, and leave orthogonal directions in the matrices' gradients."""
        self.ring.run(self.flat.gradients)
        for gradient, momentum in zip(
            self.matrices(self.flat.gradients), self.matrices(self.momentum), strict=True
        ):
            momentum.mul_(self.decay).add_(gradient)
            gradient.copy_(orthogonal(gradient + self.decay * momentum))


def cost(task: Task) -> Cost:
    """Return the bytes of a ring average in every step."""
    sent, messages = ring_cost(task.num_parameters, task.world_size)
    return Cost(sent_bytes=task.steps * sent, peak_bytes=sent, messages=task.steps * messages)
