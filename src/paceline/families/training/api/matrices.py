"""Replicas that move their layers' matrices by a rule of their own, and everything else by the point's optimiser."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.families.training.api.replica import Comm, FlatReplica, Task


def as_matrix(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a tensor as a vector or a matrix: of more axes the first stays, and the others are one.

    So a convolution's kernel, (outputs, inputs, height, width), is the matrix by which it multiplies patches.
    """
    if len(shape) < 2:
        return (math.prod(shape),)
    return (shape[0], math.prod(shape[1:]))


def matrices_of(model: nn.Module) -> list[int]:
    """Return the numbers of a model's matrices that multiply activations: no embedding, no head.

    Args:
        model: With an ``embedding`` and perhaps a ``head``, as ``model.Transformer``.
    """
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    head = getattr(model, "head", None)
    if head is not None:
        tables.add(id(head.weight))
    return [n for n, p in enumerate(model.parameters()) if p.dim() == 2 and id(p) not in tables]


class MatrixReplica(FlatReplica):
    """Layers' matrices go along what ``exchange_gradients`` leaves in their gradients; the rest is the optimiser's.

    A matrix of R rows and C columns moves by ``rate_factor`` · learning rate · √(R/C) times its direction: one whose
    singular values are 1 then changes activations of unit root mean square by the rate, whatever its shape (Yang et
    al., 2023, "A Spectral Condition for Feature Learning").

    Attributes:
        numbers: Of the matrices, in the model's order.
    """

    def __init__(self, task: Task, comm: Comm, *, rate_factor: float) -> None:
        # Before super().__init__, which makes the optimiser of what is left.
        self.numbers = matrices_of(task.model)
        self.rate_factor = rate_factor
        super().__init__(task, comm)

    def make_optimizer(self) -> Optimizer:
        """Return the point's optimiser over everything but the matrices."""
        chosen = set(self.numbers)
        return self.task.optimizer([p for n, p in enumerate(self.model.parameters()) if n not in chosen])

    def matrices(self, vector: Tensor) -> list[Tensor]:
        """Return the matrices' parts of a vector like the parameters', as views."""
        pieces = self.flat.pieces(vector)
        return [pieces[n] for n in self.numbers]

    def update(self, step: int) -> None:
        """Step the optimiser, and move the matrices."""
        self.optimizer.step()
        rate = self.optimizer.param_groups[0]["lr"] * self.rate_factor
        for matrix, direction in zip(
            self.matrices(self.flat.values), self.matrices(self.flat.gradients), strict=True
        ):
            rows, columns = matrix.shape
            matrix.sub_(direction, alpha=rate * math.sqrt(rows / columns))
