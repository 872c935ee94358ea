"""Losses of given logits: inputs, float64 results and known mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.core.operators import (
    BaseOperator,
    Draw,
    Expected,
    Params,
    TensorSpec,
    cancellation,
    gaussian,
    integers,
    min_precise,
    within,
)


class CrossEntropy(BaseOperator):
    """loss[t] = logsumexp(logits[t]) − logits[t, target[t]], in float32."""

    name = "cross_entropy"
    rolled = 1

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return logits (tokens, vocab) and targets (tokens, int64); loss (tokens, float32)."""
        tokens, vocab = params["tokens"], params["vocab"]
        return (
            [
                TensorSpec(name="logits", shape=(tokens, vocab), dtype=dtype),
                TensorSpec(name="targets", shape=(tokens,), dtype=torch.int64),
            ],
            [TensorSpec(name="loss", shape=(tokens,), dtype=min_precise(dtype))],
        )

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw logits with a spread of a few units, and targets."""
        (spec, _), (loss,) = self.tensors(params, dtype)
        logits_TV = gaussian(spec.shape, dtype, seed=seed, stream=0, magnitude=3.0 * magnitude, device=device)
        targets_T = integers(spec.shape[0], spec.shape[1], seed=seed, stream=1, device=device)
        lse_T = torch.logsumexp(logits_TV.double(), dim=-1)
        value = self._loss(lse_T, logits_TV.double(), targets_T)
        accumulate = min_precise(dtype)
        wide = logits_TV.to(accumulate)
        naive = self._loss(torch.logsumexp(wide, dim=-1), wide, targets_T)
        expected = within(value, naive, loss.dtype, ulps=4.0, extra=cancellation(wide))
        return Draw(inputs=(logits_TV, targets_T), expected=(expected,), facts={"lse": lse_T})

    @staticmethod
    def _loss(lse_T: Tensor, logits_TV: Tensor, targets_T: Tensor) -> Tensor:
        return lse_T - logits_TV.gather(1, targets_T[:, None])[:, 0]

    def rolled_expected(self, draw: Draw, roll: int) -> tuple[Expected, ...]:
        """Return the losses for targets shifted by some rows."""
        logits_TV, targets_T = draw.inputs
        value = self._loss(draw.facts["lse"], logits_TV.double(), targets_T.roll(roll))
        (original,) = draw.expected
        largest = max(float(value.abs().max()), float(original.value.abs().max()))
        assert isinstance(original.bound, Tensor)
        return (
            replace(
                original,
                value=value,
                bound=original.bound.max() * largest / max(float(original.value.abs().max()), 1e-300),
            ),
        )

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield losses without the target's logit, without the last column, and of the neighbour's target."""
        logits_TV, targets_T = draw.inputs
        wide = logits_TV.double()
        yield "no-target", (draw.facts["lse"],)
        yield "dropped-column", (self._loss(torch.logsumexp(wide[:, 1:], -1), wide, targets_T),)
        if len(targets_T) > 1:
            yield "wrong-target", (self._loss(draw.facts["lse"], wide, targets_T.roll(1)),)

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return odd tokens and vocabularies."""
        return [{"tokens": t, "vocab": v} for t, v in ((1, 2), (3, 1009), (17, 4097))]
