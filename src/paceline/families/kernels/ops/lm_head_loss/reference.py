"""Losses of a language model's head and their gradients: inputs, float64 results and known mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.core.operators import (
    BaseOperator,
    Draw,
    Params,
    Scaling,
    TensorSpec,
    cancellation,
    gaussian,
    integers,
    min_precise,
    within,
)

LOSS_SCALE = 1024.0
"""Loss scale in float16, whose gradients would vanish without one."""


class LmHeadLoss(BaseOperator):
    """Mean cross-entropy of hidden·Wᵀ times a scale, and the gradients of that."""

    name = "lm_head_loss"
    scalings = (Scaling(inputs=((3, 1),), outputs=(0, 1, 2)),)

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return hidden (tokens, hidden), W (vocab, hidden), targets, scale (1, float32); loss and both gradients."""
        tokens, hidden, vocab = params["tokens"], params["hidden"], params["vocab"]
        return (
            [
                TensorSpec(name="hidden", shape=(tokens, hidden), dtype=dtype),
                TensorSpec(name="weight", shape=(vocab, hidden), dtype=dtype),
                TensorSpec(name="targets", shape=(tokens,), dtype=torch.int64),
                TensorSpec(name="scale", shape=(1,), dtype=min_precise(dtype)),
            ],
            [
                TensorSpec(name="loss", shape=(1,), dtype=min_precise(dtype)),
                TensorSpec(name="grad_hidden", shape=(tokens, hidden), dtype=dtype),
                TensorSpec(name="grad_weight", shape=(vocab, hidden), dtype=dtype),
            ],
        )

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw hidden states and weights whose logits spread by a few units."""
        (h_spec, w_spec, t_spec, _), outputs = self.tensors(params, dtype)
        h_TH = gaussian(h_spec.shape, dtype, seed=seed, stream=0, magnitude=magnitude, device=device)
        spread = 3.0 / h_spec.shape[1] ** 0.5
        w_VH = gaussian(w_spec.shape, dtype, seed=seed, stream=1, magnitude=spread, device=device)
        targets_T = integers(t_spec.shape[0], w_spec.shape[0], seed=seed, stream=2, device=device)
        accumulate = min_precise(dtype)
        factor = LOSS_SCALE if dtype == torch.float16 else 1.0
        scale = torch.full((1,), factor, dtype=accumulate, device=device)
        value = self._gradients(h_TH.double(), w_VH.double(), targets_T, factor)
        rounded = dtype if dtype != accumulate else None
        naive = self._gradients(h_TH.to(accumulate), w_VH.to(accumulate), targets_T, factor, rounded)
        cancelled = cancellation(h_TH.to(accumulate) @ w_VH.to(accumulate).T) * factor
        expected = tuple(
            within(v, n, s.dtype, ulps=4.0, times=8.0 if rounded is None else 4.0, extra=extra)
            for v, n, s, extra in zip(value, naive, outputs, (cancelled, 0.0, 0.0), strict=True)
        )
        return Draw(inputs=(h_TH, w_VH, targets_T, scale), expected=expected)

    @staticmethod
    def _gradients(
        h_TH: Tensor, w_VH: Tensor, targets_T: Tensor, scale: float, rounded: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits_TV = h_TH @ w_VH.T
        if rounded is not None:
            logits_TV = logits_TV.to(rounded).to(h_TH.dtype)
        log_p_TV = torch.log_softmax(logits_TV, dim=-1)
        loss = -log_p_TV.gather(1, targets_T[:, None]).mean().view(1) * scale
        d_TV = log_p_TV.exp()
        d_TV.scatter_add_(1, targets_T[:, None], torch.full_like(d_TV[:, :1], -1.0))
        d_TV *= scale / len(targets_T)
        if rounded is not None:
            d_TV = d_TV.to(rounded).to(h_TH.dtype)
        return loss, d_TV @ w_VH, d_TV.T @ h_TH

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield gradients summed instead of averaged, without the target, and a weight gradient without a token."""
        loss, grad_h, grad_w = (e.value for e in draw.expected)
        tokens = grad_h.shape[0]
        if tokens > 1:
            yield "summed", (loss * tokens, grad_h * tokens, grad_w * tokens)
            kept = draw.inputs[0].double()[:-1]
            scale = float(draw.inputs[3])
            rest = self._gradients(kept, draw.inputs[1].double(), draw.inputs[2][:-1], scale)[2]
            yield "dropped-token", (loss, grad_h, rest * (tokens - 1) / tokens)
        yield "no-weight-gradient", (loss, grad_h, torch.zeros_like(grad_w))

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return odd tokens, widths and vocabularies."""
        return [
            {"tokens": t, "hidden": h, "vocab": v} for t, h, v in ((1, 3, 5), (7, 17, 101), (33, 24, 1009))
        ]
