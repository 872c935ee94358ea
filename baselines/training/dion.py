"""Dion: steps of layers' matrices are orthonormal and of low rank, and only their two thin factors travel.

Ahn et al., 2025, "Dion: Distributed Orthonormalized Updates" (arXiv:2504.05295).

Algorithm, of each matrix of a layer, taken with its longer side first (G: this rank's gradient, M: its own momentum,
Q: its right factor, kept from step to step, of r = ⌈``fraction`` · shorter side⌉ columns):
1. M ← M + G. P ← M·Q, averaged over ranks; P's columns are made orthonormal.
2. R ← Mᵀ·P, averaged over ranks. M ← M − (1 − μ)·P·Rᵀ: what the factors do not carry stays whole.
3. Q: R with columns of norm 1. θ ← θ − f·η·√(rows/columns)·P·Qᵀ; f: ``rate_factor``.
A matrix whose factors are no smaller than itself has its gradient averaged instead, before step 1. Embedding, head and
vectors are averaged whole, and the point's optimiser's.

Cost of a step: two ring averages, of Σ r·longer + what is averaged whole, and of Σ r·shorter elements.
Memory: M and Q, 4 bytes an element of them, where Adam keeps 8 of each matrix.
Limits: matrices are whole on every rank; the authors' also works on shards. Momenta differ between ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.matrices import MatrixReplica, matrices_of
from paceline.families.training.api.replica import Comm, Cost, Task

SMALL = 1e-8
"""Beside norms of columns that they are divided by."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A matrix, with its longer side first."""

    number: int
    longer: int
    shorter: int
    turned: bool
    """Whether it has more columns than rows."""
    rank: int
    thin: bool
    """Whether its factors are smaller than it is, and travel in its place."""


def shapes_of(task: Task, fraction: float) -> list[Shape]:
    """Return the layers' matrices of a model, in its order.

    Args:
        task: Whose model it is.
        fraction: Of the shorter side: r.
    """
    parameters, found = list(task.model.parameters()), []
    for number in matrices_of(task.model):
        rows, columns = parameters[number].shape
        longer, shorter = max(rows, columns), min(rows, columns)
        rank = min(math.ceil(fraction * shorter), shorter)
        thin = fraction < 1 and (longer + shorter) * rank < longer * shorter
        found.append(Shape(number, longer, shorter, rows < columns, rank, thin))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """A matrix with its longer side first, all of it views."""

    gradient: Tensor
    """(longer, shorter): what backward gave, and then the direction."""
    momentum: Tensor
    """M, alike."""
    left: Tensor
    """P, (longer, r)."""
    right: Tensor
    """Q, (shorter, r)."""
    fresh: Tensor
    """R, (shorter, r)."""
    thin: bool

    def begin(self) -> None:
        """Take the gradient into the momentum, and multiply by the right factor."""
        self.momentum.add_(self.gradient)
        torch.mm(self.momentum, self.right, out=self.left)

    def end(self, decay: float) -> None:
        """Take out of the momentum what the factors carry of it, and leave the direction in the gradient."""
        self.momentum.sub_(self.left @ self.fresh.T, alpha=1 - decay)
        norms = self.fresh.norm(dim=0, keepdim=True)
        if not norms.any():
            self.gradient.zero_()  # and Q stays: of zeros no iteration could go on
            return
        torch.div(self.fresh, norms + SMALL, out=self.right)
        self.gradient.copy_(self.left @ self.right.T)


@technique(
    name="dion",
    family="training",
    implements=("data_parallel",),
    summary="orthonormal steps of low rank, of which only thin factors travel",
    paper="dion",
    properties={"exact": False, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract of arXiv:2504.05295",
            "code": "github.com/microsoft/dion: dion/dion_simple.py, dion/dion_reference.py, configs/dion_160m.yaml",
        },
        "deviations": (
            "Columns are made orthonormal by Householder's QR; the authors' default is a randomised Cholesky QR.",
            "Weights do not decay; the authors' default is 0.01.",
            "A right factor that became zero, after a gradient of zeros, stays as it was.",
            "Matrices are whole on every rank; the authors' code also keeps them in shards.",
        ),
        "constants": {
            "fraction": {
                "here": 0.25,
                "authors": "1 by default, 1/2 in dion_160m.yaml; the paper's name is r/d",
                "official": 1.0,
                "source": "github.com/microsoft/dion: dion/dion_reference.py",
                "differs": "a quarter of the rank, so that less travels; configs/dion_160m.yaml has a half",
            },
            "decay": {
                "here": 0.95,
                "authors": "0.95 (mu)",
                "official": 0.95,
                "source": "github.com/microsoft/dion: dion/dion_reference.py",
            },
            "rate_factor": {
                "here": 1.0,
                "authors": "0.02, times the same √(rows/columns), for all of their sizes",
            },
        },
        "checked_by": (
            "tests/unit/test_orthonormal_steps.py::test_ranks_with_thin_factors_do_what_one_process_does",
            "tests/unit/test_orthonormal_steps.py::test_a_step_is_the_papers",
        ),
    },
)
class Dion(MatrixReplica):
    """Average left factors and what travels whole, then right factors."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        fraction: float = 0.25,
        decay: float = 0.95,
        rate_factor: float = 1.0,
    ) -> None:
        super().__init__(task, comm, rate_factor=rate_factor)
        self.decay, shapes = decay, shapes_of(task, fraction)
        self.momentum = self.register_state("momentum", torch.zeros_like(self.flat.values), kind="optimizer")
        # The shared seed: an average of M·Q means something only where all ranks multiplied by the same Q.
        generator = torch.Generator(device=task.device).manual_seed(task.seed % (1 << 31))
        drawn = torch.randn(sum(s.shorter * s.rank for s in shapes), generator=generator, device=task.device)
        self.right = self.register_state("right", drawn, kind="optimizer")
        sizes = sent_elements(task, shapes)
        self.sent = [torch.empty(size, device=task.device) for size in sizes]
        self.rings = [RingAverage(comm, size, dtype=torch.float32, device=task.device) for size in sizes]
        self.factors = self._factors(shapes)
        thin = {s.number for s in shapes if s.thin}
        self.whole = [g for n, g in enumerate(self.flat.pieces(self.flat.gradients)) if n not in thin]
        """Gradients that are averaged as they are."""
        begin = sum(f.left.numel() for f in self.factors if f.thin)
        self.averaged = cut(self.sent[0][begin:], [tuple(g.shape) for g in self.whole])

    def _factors(self, shapes: list[Shape]) -> list[Factors]:
        """Return views of everything that belongs to a matrix; of those with thin factors, of what travels."""
        thin = [s for s in shapes if s.thin]
        lefts = iter(cut(self.sent[0], [(s.longer, s.rank) for s in thin]))
        found = iter(cut(self.sent[1], [(s.shorter, s.rank) for s in thin]))
        rights = cut(self.right, [(s.shorter, s.rank) for s in shapes])
        parts = zip(
            shapes, self.matrices(self.flat.gradients), self.matrices(self.momentum), rights, strict=True
        )
        return [
            Factors(
                gradient=gradient.T if shape.turned else gradient,
                momentum=momentum.T if shape.turned else momentum,
                left=next(lefts) if shape.thin else right.new_empty(shape.longer, shape.rank),
                right=right,
                fresh=next(found) if shape.thin else torch.empty_like(right),
                thin=shape.thin,
            )
            for shape, gradient, momentum, right in parts
        ]

    def exchange_gradients(self, step: int) -> None:
        """Leave the products of orthonormal and normalised factors in the matrices' gradients."""
        for factors in self.factors:
            if factors.thin:
                factors.begin()
        for part, gradient in zip(self.averaged, self.whole, strict=True):
            part.copy_(gradient)
        self.rings[0].run(self.sent[0])
        for part, gradient in zip(self.averaged, self.whole, strict=True):
            gradient.copy_(part)
        for factors in self.factors:
            if not factors.thin:
                factors.begin()  # of the average: all ranks do the same to the same momentum
            # The ring leaves equal bits on all ranks, so each finds the same basis.
            factors.left.copy_(torch.linalg.qr(factors.left).Q)
            torch.mm(factors.momentum.T, factors.left, out=factors.fresh)
        if len(self.sent[1]):
            self.rings[1].run(self.sent[1])
        for factors in self.factors:
            factors.end(self.decay)


def cut(vector: Tensor, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    """Return views of a vector's beginning, one of each shape."""
    found, at = [], 0
    for shape in shapes:
        size = math.prod(shape)
        found.append(vector[at : at + size].view(shape))
        at += size
    return found


def sent_elements(task: Task, shapes: list[Shape]) -> tuple[int, int]:
    """Return the elements of both averages of a step."""
    thin = [s for s in shapes if s.thin]
    whole = task.num_parameters - sum(s.longer * s.shorter for s in thin)
    return whole + sum(s.longer * s.rank for s in thin), sum(s.shorter * s.rank for s in thin)


def cost(task: Task, *, fraction: float) -> Cost:
    """Return the header's formula for all steps."""
    sides = [
        ring_cost(size, task.world_size) for size in sent_elements(task, shapes_of(task, fraction)) if size
    ]
    sent, messages = sum(s[0] for s in sides), sum(s[1] for s in sides)
    return Cost(sent_bytes=task.steps * sent, peak_bytes=sent, messages=task.steps * messages)
