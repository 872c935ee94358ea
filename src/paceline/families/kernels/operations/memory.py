"""Operations that move memory more than they compute: copies, the STREAM triad, and the fused add and norm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.operation import (
    UNIT_ROUNDOFF,
    BaseOperation,
    Draw,
    Params,
    Scaling,
    TensorSpec,
    exactly,
    gaussian,
    min_precise,
    within,
)

EPSILON = 1e-6
"""Added to the mean square before the root."""


class Copy(BaseOperation):
    """c = a."""

    name = "copy"
    scalings = (Scaling(inputs=((0, 1),), outputs=(0,)),)

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return a; c."""
        count = params["size_bytes"] // dtype.itemsize
        return [TensorSpec(name="a", shape=(count,), dtype=dtype)], [
            TensorSpec(name="c", shape=(count,), dtype=dtype)
        ]

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw gaussian numbers."""
        (spec,), _ = self.tensors(params, dtype)
        a_N = gaussian(spec.shape, dtype, seed=seed, stream=0, magnitude=magnitude, device=device)
        return Draw(inputs=(a_N,), expected=(exactly(a_N),))

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return sizes that fit no vector."""
        return [{"size_bytes": 8 * n} for n in (1, 7, 1009)]


class Triad(Copy):
    """c = a + 3·b."""

    name = "triad"
    scalings = (Scaling(inputs=((0, 1), (1, 1)), outputs=(0,)),)

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return a and b; c."""
        (first,), outputs = super().tensors(params, dtype)
        return [first, TensorSpec(name="b", shape=first.shape, dtype=dtype)], outputs

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw gaussian numbers."""
        specs, _ = self.tensors(params, dtype)
        a_N, b_N = (
            gaussian(s.shape, dtype, seed=seed, stream=i, magnitude=magnitude, device=device)
            for i, s in enumerate(specs)
        )
        value = a_N.double() + 3.0 * b_N.double()
        accumulate = min_precise(dtype)
        naive = a_N.to(accumulate) + 3.0 * b_N.to(accumulate)
        product = 3.0 * b_N.double().abs() * UNIT_ROUNDOFF[dtype]
        return Draw(inputs=(a_N, b_N), expected=(within(value, naive, dtype, extra=product),))


class StridedCopy(BaseOperation):
    """The first columns of each row of a wider matrix become contiguous."""

    name = "strided_copy"
    scalings = (Scaling(inputs=((0, 1),), outputs=(0,)),)

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return the wide matrix (rows, row_stride); the packed one (rows, columns)."""
        rows, columns, stride = params["rows"], params["columns"], params["row_stride"]
        return [TensorSpec(name="wide", shape=(rows, stride), dtype=dtype)], [
            TensorSpec(name="packed", shape=(rows, columns), dtype=dtype)
        ]

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw gaussian numbers."""
        (spec,), _ = self.tensors(params, dtype)
        wide = gaussian(spec.shape, dtype, seed=seed, stream=0, magnitude=magnitude, device=device)
        return Draw(inputs=(wide,), expected=(exactly(wide[:, : params["columns"]].contiguous()),))

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return odd rows and columns."""
        return [
            {"rows": r, "columns": c, "row_stride": s} for r, c, s in ((1, 1, 1), (7, 3, 5), (129, 17, 31))
        ]


class AddRmsNorm(BaseOperation):
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
