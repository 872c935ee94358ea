"""Products of factors in float8_e4m3fn, as quantised layers compute them: inputs, float64 results, known mistakes.

Each factor has one scale. Magnitudes and variations are the scales': an element of float8 has no room for them. A is
shifted besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from paceline.base.draws import stream_seed
from paceline.families.kernels.core.operators import (
    BaseOperator,
    Draw,
    Expected,
    Params,
    Scaling,
    TensorSpec,
    gaussian,
    within,
)

ACCUMULATOR = 2.0**-13
"""Roundoff of the tensor cores' sums of float8 products: about 14 bits on Hopper (DeepSeek-AI, *DeepSeek-V3 Technical
Report*, arXiv 2412.19437, section 3.3.2)."""
ROUNDINGS = 16
"""Such roundings of one result that may come together, relative to the root of its squared products."""


def tensor_core_error(a_MK: Tensor, b_NK: Tensor) -> Tensor:
    """Return what the accumulators of tensor cores may add to the error of each element of A·Bᵀ."""
    return (a_MK.square() @ b_NK.square().T).sqrt_().mul_(ROUNDINGS * ACCUMULATOR)


class ScaledGemm(BaseOperator):
    """C (m, n) = scale_a · scale_b · A (m, k) · Bᵀ with B (n, k)."""

    name = "scaled_gemm"
    scalings = (Scaling(inputs=((2, 1),), outputs=(0,)), Scaling(inputs=((3, 1),), outputs=(0,)))
    rolled = 0

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return A, B, and their scales (float32, no dimensions); C."""
        m, n, k = params["m"], params["n"], params["k"]
        return (
            [
                TensorSpec(name="a", shape=(m, k), dtype=torch.float8_e4m3fn),
                TensorSpec(name="b", shape=(n, k), dtype=torch.float8_e4m3fn),
                TensorSpec(name="scale_a", shape=(), dtype=torch.float32),
                TensorSpec(name="scale_b", shape=(), dtype=torch.float32),
            ],
            [TensorSpec(name="c", shape=(m, n), dtype=dtype)],
        )

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw gaussian factors in float8, and scales between a half and three halves; the magnitude is A's."""
        (a_spec, b_spec, *_), _ = self.tensors(params, dtype)
        a_MK, b_NK = (
            gaussian(spec.shape, spec.dtype, seed=seed, stream=i, magnitude=1.0, device=device)
            for i, spec in enumerate((a_spec, b_spec))
        )
        generator = torch.Generator().manual_seed(stream_seed(seed, "scales"))
        scale_a, scale_b = (torch.rand(2, generator=generator) + 0.5).to(device).unbind()
        scale_a = scale_a * magnitude
        wide_a, wide_b = a_MK.double() * scale_a.double(), b_NK.double() * scale_b.double()
        # Scaled before the product, as some libraries do: unscaled products of float8 are exact in float32, and their
        # sums nearly so.
        naive = (a_MK.float() * scale_a) @ (b_NK.float() * scale_b).T
        extra = tensor_core_error(wide_a, wide_b) if device != "cpu" else 0.0
        expected = within(wide_a @ wide_b.T, naive, dtype, ulps=4.0, extra=extra)
        return Draw(inputs=(a_MK, b_NK, scale_a, scale_b.clone()), expected=(expected,))

    def rolled_expected(self, draw: Draw, roll: int) -> tuple[Expected, ...]:
        """Return the result for shifted rows of A: its rows, shifted alike."""
        (one,) = draw.expected
        assert isinstance(one.bound, Tensor)
        return (replace(one, value=one.value.roll(roll, 0), bound=one.bound.roll(roll, 0)),)

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield products that leave out a scale, the end of the reduction, or a bit of each factor."""
        a_MK, b_NK, scale_a, scale_b = draw.inputs
        scale = float(scale_a) * float(scale_b)
        wide_a, wide_b = a_MK.double(), b_NK.double()
        kept = max(wide_a.shape[1] - 1, 0)
        yield "one-scale", (wide_a @ wide_b.T * float(scale_a),)
        yield "scale-twice", (wide_a @ wide_b.T * scale * float(scale_b),)
        yield "short-reduction", (wide_a[:, :kept] @ wide_b[:, :kept].T * scale,)
        coarse_a, coarse_b = (t.to(torch.float8_e5m2).double() for t in (a_MK, b_NK))
        yield "two-bits-of-mantissa", (coarse_a @ coarse_b.T * scale,)

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return odd rows, and the multiples of sixteen that the hardware asks of the other sides."""
        return [
            {"m": m, "n": n, "k": k} for m, n, k in ((1, 16, 16), (3, 48, 80), (65, 32, 144), (17, 272, 528))
        ]
