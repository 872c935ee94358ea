"""Row-parallel linear layers with RMSNorm: ``run(x_TH, weights_LKH, gains_LH, out_TH)``.

T tokens, H hidden, L layers, K = H / n rows of each weight matrix that this rank holds. Layer l computes
xˡ⁺¹ = RMSNorm(Σᵣ xˡ[:, rows of r] · Wˡ[rows of r]) · gˡ; ``x_TH`` is the same on all ranks and must not change, and
``out_TH`` receives the last layer's result in full on every rank.
Source of the pattern: TokenWeave (arXiv 2505.11329), section 3.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.candidate import Candidate
from paceline.families.collectives.core.payloads import draw
from paceline.families.collectives.core.run import Measurement, measure_block
from paceline.families.collectives.core.timed_operation import Instance, TimedOperation, approximate
from paceline.families.collectives.ops.norm_layer.spec import OPERATION
from paceline.worker.ranks.session import Session


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


class NormLayer(TimedOperation):
    """The operation ``norm_layer``."""

    spec = OPERATION
    buffers = ("x_TH", "weights_LKH", "gains_LH", "out_TH")
    roles = ("in", "in", "in", "out")
    scalable = False

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


def _norm_rows(session: Session, candidate: Candidate) -> dict[str, Any]:
    """Return the rows that the busiest rank normalises in a call."""
    candidate.problem.norm_rows[0] = 0
    candidate.run_untimed()
    rows = session.control.gather([[float(candidate.problem.norm_rows[0])]])
    return {"norm_rows": {"samples": [max(r[0][0] for r in rows)]}}


run_block = partial(measure_block, how=Measurement(operation=NormLayer(), figures=_norm_rows))
"""Measure a block."""
