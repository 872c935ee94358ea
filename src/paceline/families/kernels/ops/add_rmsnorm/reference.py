"""Sums that are normalised: inputs, float64 results and known mistakes."""

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
    gaussian,
    min_precise,
    within,
)

EPSILON = 1e-6
"""Added to the mean square before the root."""


class AddRmsNorm(BaseOperator):
    """s = x + residual; y = s / sqrt(mean(s²) + 1e-6) · weight."""

    name = "add_rmsnorm"
    scalings = (
        Scaling(inputs=((2, 1),), outputs=(0,)),
        Scaling(inputs=((0, 1), (1, 1)), outputs=(0, 1), exponents=False),
    )

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return x and residual (tokens, hidden) and weight (hidden,); y and s (tokens, hidden)."""
        shape = (params["tokens"], params["hidden"])
        return (
            [
                TensorSpec(name="x", shape=shape, dtype=dtype),
                TensorSpec(name="residual", shape=shape, dtype=dtype),
                TensorSpec(name="weight", shape=shape[1:], dtype=dtype),
            ],
            [TensorSpec(name="y", shape=shape, dtype=dtype), TensorSpec(name="s", shape=shape, dtype=dtype)],
        )

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw gaussian numbers; statistics are taken in float32 or wider, of the sum before or after rounding."""
        specs, _ = self.tensors(params, dtype)
        x_TH, r_TH, w_H = (
            gaussian(s.shape, dtype, seed=seed, stream=i, magnitude=m, device=device)
            for i, (s, m) in enumerate(zip(specs, (magnitude, magnitude, 1.0), strict=True))
        )
        value_s = x_TH.double() + r_TH.double()
        naive_s = (x_TH.to(min_precise(dtype)) + r_TH.to(min_precise(dtype))).to(dtype)
        value_y = self._norm(value_s, w_H.double())
        naive_y = self._norm(naive_s.to(min_precise(dtype)), w_H.to(min_precise(dtype)))
        narrow = dtype in (torch.float16, torch.bfloat16)
        return Draw(
            inputs=(x_TH, r_TH, w_H),
            expected=(
                within(value_y, value_y if narrow else naive_y, dtype, ulps=4.0),
                within(value_s, value_s if narrow else naive_s, dtype, ulps=2.0),
            ),
        )

    @staticmethod
    def _norm(s_TH: Tensor, w_H: Tensor) -> Tensor:
        return s_TH * torch.rsqrt(s_TH.square().mean(dim=-1, keepdim=True) + EPSILON) * w_H

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield a sum without norm, a norm without the residual, and a norm that subtracts the mean."""
        x_TH, r_TH, w_H = (t.double() for t in draw.inputs)
        s_TH = x_TH + r_TH
        yield "no-norm", (s_TH, s_TH)
        yield "no-residual", (self._norm(x_TH, w_H), s_TH)
        yield "layer-norm", (self._norm(s_TH - s_TH.mean(-1, keepdim=True), w_H), s_TH)
        yield "residual-kept", (self._norm(s_TH, w_H), r_TH)

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return odd rows and widths."""
        return [{"tokens": t, "hidden": h} for t, h in ((1, 2), (3, 17), (33, 257))]
