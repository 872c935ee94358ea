"""Row-parallel linear layers with RMSNorm: ``run(x_TH, weights_LKH, gains_LH, out_TH)``.

T tokens, H hidden, L layers, K = H / n rows of each weight matrix that this rank holds. Layer l computes
xˡ⁺¹ = RMSNorm(Σᵣ xˡ[:, rows of r] · Wˡ[rows of r]) · gˡ; ``x_TH`` is the same on all ranks and must not change, and
``out_TH`` receives the last layer's result in full on every rank.
Source of the pattern: TokenWeave (arXiv 2505.11329), section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.collectives.operation import Instance, Role, approximate
from paceline.families.collectives.payloads import draw
from paceline.families.collectives.problem import Problem


def _rms_norm(x_TH: Tensor, gain_H: Tensor, epsilon: float = 1e-6) -> Tensor:
    return x_TH * torch.rsqrt(x_TH.square().mean(dim=-1, keepdim=True) + epsilon) * gain_H


def _forward(x_TH: Tensor, weights_LHH: Tensor, gains_LH: Tensor, *, without: slice | None = None) -> Tensor:
    """Run all layers in one process; ``without`` leaves out the rows of one rank."""
    for weight_HH, gain_H in zip(weights_LHH, gains_LH, strict=True):
        product_TH = x_TH @ weight_HH
        if without is not None:
            product_TH = product_TH - x_TH[:, without] @ weight_HH[without]
        x_TH = _rms_norm(product_TH, gain_H)
    return x_TH


@dataclass(frozen=True, slots=True, kw_only=True)
class NormLayer:
    """The operation ``norm_layer``."""

    name: str = "norm_layer"
    buffers: tuple[str, ...] = ("x_TH", "weights_LKH", "gains_LH", "out_TH")
    roles: tuple[Role, ...] = ("in", "in", "in", "out")
    scalable: bool = False

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (T, H), (L, K, H), (L, H) and (T, H)."""
        tokens, hidden = problem.integer("tokens"), problem.integer("hidden")
        layers, rows = problem.integer("layers"), hidden // problem.world_size
        return ((tokens, hidden), (layers, rows, hidden), (layers, hidden), (tokens, hidden))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw activations, weights and gains that are the same for all ranks, and run the layers in float64."""
        tokens, hidden = problem.integer("tokens"), problem.integer("hidden")
        layers, size = problem.integer("layers"), problem.world_size

        def shared(count: int, salt: int) -> Tensor:
            values = draw("gaussian", count, seed=seed + salt, rank=0, world_size=1, dtype=torch.float64)
            return values.to(problem.device)

        x_TH = (shared(tokens * hidden, 1).view(tokens, hidden) * magnitude).to(problem.dtype)
        weights_LHH = shared(layers * hidden * hidden, 2).view(layers, hidden, hidden) * hidden**-0.5
        weights_LHH = weights_LHH.to(problem.dtype)
        gains_LH = (1 + 0.1 * shared(layers * hidden, 3).view(layers, hidden)).to(problem.dtype)
        wide = (x_TH.double(), weights_LHH.double(), gains_LH.double())
        reference_TH = _forward(*wide)
        naive_TH = _forward(x_TH, weights_LHH, gains_LH)
        rows = hidden // size
        mine = slice(problem.rank * rows, (problem.rank + 1) * rows)
        last = slice((size - 1) * rows, size * rows)
        skipped = _forward(*wide, without=last)
        rolled = reference_TH.roll(1, dims=0)
        return Instance(
            arguments=(x_TH, weights_LHH[:, mine].contiguous(), gains_LH, None),
            expected=(None, None, None, approximate(reference_TH, naive_TH)),
            wrong=(
                ("skipped-rank", (None, None, None, skipped)),
                ("swapped-tokens", (None, None, None, rolled)),
            ),
        )
