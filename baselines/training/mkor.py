"""MKOR: gradients between inverses of Kronecker factors, which one vector of a layer's sides changes at a time.

Mozaffari et al., 2023, "MKOR: Momentum-Enabled Kronecker-Factor-Based Optimizer Using Rank-1 Updates" (NeurIPS;
arXiv:2306.01685).

Algorithm, of each layer's matrix with the gradient G (J, K: inverses of the covariances of what comes back to it and of
what goes into it, the identity at first):
1. Every ``look_every`` steps the means over positions and ranks of the inputs, a, and of the outputs' gradients, g.
2. J ← (J̃⁻¹ + g·gᵀ)⁻¹ with J̃ = ``keep``·J + (1 − ``keep``)·1, by Sherman and Morrison:
   J̃ − J̃·g·gᵀ·J̃/(1 + gᵀ·J̃·g). K alike, with a. The first means leave the identity; an inverse with an element beyond
   ``most`` is the identity again the next time.
3. The direction is J·G·K, made as long as G; the point's optimiser takes it for the gradient.

Cost of a step: a ring average of the gradients; every ``look_every`` steps another, of rows + columns elements of each
matrix in float16, where K-FAC's covariances have rows² + columns². Computation: two products of each matrix with its
inverses a step, and products with vectors.
Memory: two inverses of each matrix, rows² + columns² elements.
Limits: the hybrid, which falls back to the optimiser alone where curvature no longer helps, is not here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.curvature import CurvatureReplica, as_long_as
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.matrices import matrices_of
from paceline.families.training.api.replica import Comm, Cost, Task

CLIP = 100.0
"""Largest element of an input or a gradient that counts."""


def updated(inverse: Tensor, vector: Tensor, keep: float) -> Tensor:
    """Return an inverse, (d, d), after a vector's outer product was added to what it is the inverse of."""
    mixed = keep * inverse
    mixed.diagonal().add_(1 - keep)
    seen = mixed @ vector
    mixed.addr_(seen, seen, alpha=-1 / (1 + float(vector @ seen)))
    return mixed


@technique(
    name="mkor",
    family="training",
    implements=("data_parallel",),
    summary="Kronecker factors' inverses, changed by one averaged vector at a time, before Adam",
    paper="mkor",
    properties={"exact": False, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract of arXiv:2306.01685",
            "code": "github.com/Mohammad-Mozaffari/mkor: mkor/mkor.py, mkor/utils/factors.py",
        },
        "deviations": (
            "Inverses are kept in float32; the authors' are in float16 by default, as vectors that travel are here.",
            "Means of inputs and of gradients travel together after backward; the authors begin with the inputs.",
            "An inverse that grew too large alone begins anew; the authors' code marks both of its layer.",
            "Embedding, head and norms have no factors; the authors' code takes a list of layers without.",
        ),
        "constants": {
            "look_every": {
                "here": 10,
                "authors": "10 (inv_freq)",
                "official": 10,
                "source": "github.com/Mohammad-Mozaffari/mkor: mkor/mkor.py",
            },
            "keep": {
                "here": 0.95,
                "authors": "0.95, fixed in the code",
                "official": 0.95,
                "source": "github.com/Mohammad-Mozaffari/mkor: mkor/mkor.py",
            },
            "most": {
                "here": 2.0,
                "authors": "2, fixed in the code",
                "official": 2.0,
                "source": "github.com/Mohammad-Mozaffari/mkor: mkor/mkor.py",
            },
            "CLIP": {
                "here": 100.0,
                "authors": "100 (clipping_value)",
                "official": 100.0,
                "source": "github.com/Mohammad-Mozaffari/mkor: mkor/mkor.py",
            },
        },
        "checked_by": (
            "tests/unit/test_curvature.py::test_an_inverse_is_the_inverse",
            "tests/unit/test_curvature.py::test_steps_of_mkor_are_those_written_out",
        ),
    },
)
class Mkor(CurvatureReplica):
    """Average gradients and means, update inverses, and multiply."""

    def __init__(
        self, task: Task, comm: Comm, *, look_every: int = 10, keep: float = 0.95, most: float = 2.0
    ) -> None:
        super().__init__(task, comm, look_every=look_every)
        self.keep, self.most = keep, most
        sides = [side for shape in self.shapes for side in shape]
        self.inverses = [
            self.register_state(f"inverse{i}", torch.eye(side, device=task.device), kind="optimizer")
            for i, side in enumerate(sides)
        ]
        self.anew = self.register_state("anew", torch.ones(len(sides), dtype=torch.bool))
        """Which inverses the next vector makes the identity."""
        self.means = torch.zeros(sum(sides), device=task.device)
        self.vectors = torch.split(self.means, sides)
        """Of each matrix the mean of its outputs' gradients, and of its inputs."""
        self.ring = RingAverage(comm, task.num_parameters, dtype=torch.float32, device=task.device)
        self.thin_ring = RingAverage(comm, sum(sides), dtype=torch.float16, device=task.device)

    def see_inputs(self, place: int, inputs_NI: Tensor) -> None:
        """Keep the mean."""
        self.vectors[2 * place + 1].copy_(inputs_NI.clamp(-CLIP, CLIP).mean(dim=0))

    def see_gradients(self, place: int, gradients_NO: Tensor) -> None:
        """Keep the mean."""
        self.vectors[2 * place].copy_(gradients_NO.clamp(-CLIP, CLIP).mean(dim=0))

    def exchange_gradients(self, step: int) -> None:
        """Average, and put the directions in the gradients' place."""
        self.ring.run(self.flat.gradients)
        if step % self.look_every == 0:
            narrow = self.means.half()
            self.thin_ring.run(narrow)
            self.means.copy_(narrow)
            self._renew()
        gradients = self.matrices(self.flat.gradients)
        for gradient, left, right in zip(gradients, self.inverses[::2], self.inverses[1::2], strict=True):
            gradient.copy_(as_long_as(left @ gradient @ right, gradient))

    def _renew(self) -> None:
        for number, (inverse, vector) in enumerate(zip(self.inverses, self.vectors, strict=True)):
            if self.anew[number]:
                inverse.copy_(torch.eye(len(inverse)))
                self.anew[number] = False
                continue
            inverse.copy_(updated(inverse, vector, self.keep))
            self.anew[number] = bool(inverse.abs().max() > self.most)


def cost(task: Task, *, look_every: int) -> Cost:
    """Return the header's formula for all steps."""
    parameters = list(task.model.parameters())
    thin = sum(sum(parameters[n].shape) for n in matrices_of(task.model))
    sent, messages = ring_cost(task.num_parameters, task.world_size)
    thin_sent, thin_messages = ring_cost(thin, task.world_size, item_bytes=2)
    looks = -(-task.steps // look_every)
    return Cost(
        sent_bytes=task.steps * sent + looks * thin_sent,
        peak_bytes=sent + thin_sent,
        messages=task.steps * messages + looks * thin_messages,
    )
