"""PowerSGD: gradients of matrices travel as products of two thin factors, the rest is kept for later steps.

Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization" (NeurIPS 2019),
algorithms 1 and 2: beside one-bit and sparse methods, a compression whose codes can be all-reduced.

Algorithm (for each matrix, rows × columns; Q: its right factor of rank r, kept from step to step; E: a rank's error):
1. M ← gradient + E. P ← M·Q, averaged over ranks; orthogonalise P's columns.
2. Q ← Mᵀ·P, averaged over ranks.
3. The gradient is P·Qᵀ on every rank; E ← M − P·Qᵀ.
Vectors (gains of norms) are averaged whole, together with the P's.

Cost of a step: two ring averages, of Σ r·rows + vectors and of Σ r·columns elements. Memory: E, 4P, and the factors.
Limits: what is small beside the r largest directions waits in E.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.matrices import as_matrix
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="powersgd",
    family="training",
    implements=("data_parallel",),
    summary="gradients of matrices as products of two thin factors, with error feedback",
    properties={
        "exact": False,
        "replicas": "identical",
        "equals_ddp": {"optimizer": "sgd", "arguments": {"rank": 1_000_000}},
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "algorithms 1 and 2 by the header, not read for this card",
            "code": "github.com/epfml/powersgd: README.md, powersgd/powersgd.py",
        },
        "deviations": (
            "Columns are orthogonalised by QR.",
            (
                "A step multiplies by both factors, as the paper does; the authors' newer code multiplies by one "
                "of them in turn."
            ),
            (
                "Every matrix is compressed from the first step on; the authors' code leaves those alone that it "
                "cannot halve, and all of them for 100 steps."
            ),
            (
                "A matrix has no more than r = rows: P is then square and orthogonal, so that with plain SGD a "
                "step equals synchronous training to rounding."
            ),
            "The inner optimiser is the point's.",
        ),
        "constants": {
            "rank": {"here": 2, "authors": "set by the user"},
        },
        "checked_by": (
            "tests/unit/test_compressed_steps.py::test_thin_factors_carry_the_mean_of_gradients_and_of_what_was_left_out",
            "tests/unit/test_compressed_steps.py::test_factors_of_full_rank_carry_the_mean_of_gradients_whatever_their_own_rank",
        ),
    },
)
class PowerSgd(FlatReplica):
    """Average left factors and vectors, then right factors."""

    def __init__(self, task: Task, comm: Comm, *, rank: int = 2) -> None:
        super().__init__(task, comm)
        shapes = [as_matrix(p.shape) for p in task.model.parameters()]
        self.left = torch.zeros(left_size(shapes, rank), device=task.device)
        # The shared seed: the average of P = M·Q is meaningful only if every rank multiplied by the same Q.
        generator = torch.Generator(device=task.device).manual_seed(task.seed % (1 << 31))
        drawn = torch.randn(right_size(shapes, rank), generator=generator, device=task.device)
        # Kept: Q is one step of a power iteration further each time, and a resumed run must go on from the same one.
        self.right = self.register_state("right", drawn)
        self.error = self.register_state("error", torch.zeros_like(self.flat.values))
        self.rank = rank
        self.rings = [
            RingAverage(comm, side.numel(), dtype=torch.float32, device=task.device)
            for side in (self.left, self.right)
        ]

    def exchange_gradients(self, step: int) -> None:
        """Replace the gradients by the averaged product of factors."""
        # In place: from here to the end of the step the error's memory holds M, and then what P·Qᵀ did not carry.
        whole = self.error.add_(self.flat.gradients)
        matrices, vectors = self._pieces(whole)
        lefts, rights, plain = self._factors()
        for matrix, left, right in zip(matrices, lefts, rights, strict=True):
            torch.mm(matrix, right, out=left)
        for vector, part in zip(vectors, plain, strict=True):
            part.copy_(vector)
        self.rings[0].run(self.left)
        for matrix, left, right in zip(matrices, lefts, rights, strict=True):
            # The ring leaves equal bits on all ranks, so each finds the same basis without another message.
            left.copy_(torch.linalg.qr(left).Q)
            torch.mm(matrix.T, left, out=right)
        self.rings[1].run(self.right)
        found, averages = self._pieces(self.flat.gradients)
        for gradient, left, right in zip(found, lefts, rights, strict=True):
            torch.mm(left, right.T, out=gradient)
        for average, part in zip(averages, plain, strict=True):
            average.copy_(part)
        # Against the averaged product and not the own one: that is what every rank applies.
        whole.sub_(self.flat.gradients)
        for vector in vectors:
            # Vectors were averaged exactly: own minus mean is no error, since the mean already contains the rest.
            vector.zero_()

    def _pieces(self, vector: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return a flat vector's matrices and its vectors, as views."""
        pieces = [p.view(as_matrix(p.shape)) for p in self.flat.pieces(vector)]
        return [p for p in pieces if p.dim() == 2], [p for p in pieces if p.dim() == 1]

    def _factors(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return left factors, right factors and vectors as views of what is sent."""
        lefts, rights, plain, at, along = [], [], [], 0, 0
        for parameter in self.model.parameters():
            shape = as_matrix(parameter.shape)
            if len(shape) == 2:
                rows, columns = shape
                # Bounded by rows, not by columns: at r = rows P is square and orthogonal, so P·Pᵀ·M is M.
                width = min(self.rank, rows)
                lefts.append(self.left[at : at + rows * width].view(rows, width))
                rights.append(self.right[along : along + columns * width].view(columns, width))
                at, along = at + rows * width, along + columns * width
            else:
                plain.append(self.left[at : at + parameter.numel()])
                at += parameter.numel()
        return lefts, rights, plain


def left_size(shapes: list[tuple[int, ...]], rank: int) -> int:
    """Return the elements of all left factors and vectors."""
    return sum(s[0] * min(rank, s[0]) if len(s) == 2 else s[0] for s in shapes)


def right_size(shapes: list[tuple[int, ...]], rank: int) -> int:
    """Return the elements of all right factors."""
    return sum(s[1] * min(rank, s[0]) for s in shapes if len(s) == 2)


def cost(task: Task, *, rank: int) -> Cost:
    """Return the header's formula for all steps."""
    shapes = [as_matrix(p.shape) for p in task.model.parameters()]
    sides = [ring_cost(size(shapes, rank), task.world_size) for size in (left_size, right_size)]
    sent, messages = sum(s[0] for s in sides), sum(s[1] for s in sides)
    return Cost(sent_bytes=task.steps * sent, peak_bytes=sent, messages=task.steps * messages)
