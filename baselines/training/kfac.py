"""K-FAC: gradients between inverses of the covariances of layers' inputs and of their outputs' gradients.

Martens and Grosse, 2015, "Optimizing Neural Networks with Kronecker-factored Approximate Curvature" (ICML), whose
factors all ranks average whole, as in Ba et al., 2017, "Distributed Second-Order Optimization using Kronecker-Factored
Approximations" (ICLR).

Algorithm, of each layer's matrix with the gradient G:
1. Every ``look_every`` steps the covariances over positions and ranks of the inputs, A, and of the outputs' gradients,
   S, enter averages that keep ``keep`` of what they were; the first ones are taken whole.
2. Every ``solve_every`` steps their eigenvectors, Q, and eigenvalues, λ.
3. The direction is Q_S·((Q_Sᵀ·G·Q_A)/(λ_S·λ_Aᵀ + ``damping``))·Q_Aᵀ, which solves (S⊗A + damping)·x = G, made as long
   as G; the point's optimiser takes it for the gradient.

Cost of a step: a ring average of the gradients; every ``look_every`` steps another, of rows² + columns² elements of
each matrix. Memory: both covariances of each matrix, and their eigenvectors.
Limits: every rank finds all eigenvectors; KAISA and others share them out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.curvature import CurvatureReplica, as_long_as
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.matrices import matrices_of
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="kfac",
    family="training",
    implements=("data_parallel",),
    summary="inverses of Kronecker factors, whose covariances all ranks average, before Adam",
    properties={"exact": False, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "Martens and Grosse, 2015, not read for this card",
            "code": "github.com/Mohammad-Mozaffari/mkor: mkor/utils/factors.py, whose covariances these are",
        },
        "deviations": (
            "A direction is as long as its gradient, as MKOR's; others bound the change of the network's function.",
            "It stands before Adam, as MKOR does; K-FAC's own is momentum.",
        ),
        "constants": {
            "look_every": {"here": 10, "authors": "MKOR's: 10"},
            "solve_every": {"here": 50, "authors": "none read"},
            "keep": {"here": 0.95, "authors": "0.95 (stat_decay of MKOR's code)"},
            "damping": {"here": 0.001, "authors": "none read"},
        },
        "checked_by": (
            "tests/unit/test_curvature.py::test_the_direction_of_kfac_solves_its_system",
            "tests/unit/test_curvature.py::test_covariances_are_those_of_all_ranks_positions",
        ),
    },
)
class Kfac(CurvatureReplica):
    """Average gradients and covariances, find eigenvectors, and divide."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        look_every: int = 10,
        solve_every: int = 50,
        keep: float = 0.95,
        damping: float = 0.001,
    ) -> None:
        super().__init__(task, comm, look_every=look_every)
        self.solve_every, self.keep, self.damping = solve_every, keep, damping
        sides = [side for shape in self.shapes for side in shape]
        count = sum(side * side for side in sides)
        self.fresh = torch.zeros(count, device=task.device)
        self.whole = self.register_state("covariances", torch.zeros_like(self.fresh), kind="optimizer")
        self.basis = self.register_state("vectors", torch.zeros_like(self.fresh), kind="optimizer")
        self.scales = self.register_state("values", torch.zeros(sum(sides), device=task.device))

        def squares(vector: Tensor) -> list[Tensor]:
            parts = torch.split(vector, [side * side for side in sides])
            return [part.view(side, side) for part, side in zip(parts, sides, strict=True)]

        self.covariances, self.seen = squares(self.whole), squares(self.fresh)
        """Of each matrix that of its outputs' gradients, and that of its inputs."""
        self.vectors, self.values = squares(self.basis), torch.split(self.scales, sides)
        self.ring = RingAverage(comm, task.num_parameters, dtype=torch.float32, device=task.device)
        self.wide_ring = RingAverage(comm, count, dtype=torch.float32, device=task.device)

    def see_inputs(self, place: int, inputs_NI: Tensor) -> None:
        """Keep the covariance."""
        torch.div(inputs_NI.T @ inputs_NI, len(inputs_NI), out=self.seen[2 * place + 1])

    def see_gradients(self, place: int, gradients_NO: Tensor) -> None:
        """Keep the covariance."""
        torch.div(gradients_NO.T @ gradients_NO, len(gradients_NO), out=self.seen[2 * place])

    def exchange_gradients(self, step: int) -> None:
        """Average, and put the directions in the gradients' place."""
        self.ring.run(self.flat.gradients)
        if step % self.look_every == 0:
            self.wide_ring.run(self.fresh)
            self.whole.lerp_(self.fresh, 1 - self.keep if step else 1.0)
        if step % self.solve_every == 0:
            for covariance, values, vectors in zip(self.covariances, self.values, self.vectors, strict=True):
                # In float64: eigenvalues of a covariance span more than float32 holds.
                found = torch.linalg.eigh(covariance.double())
                values.copy_(found.eigenvalues.clamp(min=0.0))
                vectors.copy_(found.eigenvectors)
        for place, gradient in enumerate(self.matrices(self.flat.gradients)):
            gradient.copy_(as_long_as(self.direction(place, gradient), gradient))

    def direction(self, place: int, gradient: Tensor) -> Tensor:
        """Return the solution of a matrix's system for its gradient."""
        left, right = self.vectors[2 * place], self.vectors[2 * place + 1]
        scale = self.values[2 * place].outer(self.values[2 * place + 1]) + self.damping
        return left @ ((left.T @ gradient @ right) / scale) @ right.T


def cost(task: Task, *, look_every: int) -> Cost:
    """Return the header's formula for all steps."""
    parameters = list(task.model.parameters())
    wide = sum(side * side for n in matrices_of(task.model) for side in parameters[n].shape)
    sent, messages = ring_cost(task.num_parameters, task.world_size)
    wide_sent, wide_messages = ring_cost(wide, task.world_size)
    looks = -(-task.steps // look_every)
    return Cost(
        sent_bytes=task.steps * sent + looks * wide_sent,
        peak_bytes=sent + wide_sent,
        messages=task.steps * messages + looks * wide_messages,
    )
