"""Scaled sums of arrays: inputs and float64 results."""

from __future__ import annotations

from typing import Any

import torch

from paceline.families.kernels.core.operators import (
    UNIT_ROUNDOFF,
    BaseOperator,
    Draw,
    Params,
    Scaling,
    TensorSpec,
    gaussian,
    min_precise,
    within,
)


class Triad(BaseOperator):
    """c = a + 3·b."""

    name = "triad"
    scalings = (Scaling(inputs=((0, 1), (1, 1)), outputs=(0,)),)

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return a and b; c."""
        shape = (params["size_bytes"] // dtype.itemsize,)
        a, b, c = (TensorSpec(name=name, shape=shape, dtype=dtype) for name in "abc")
        return [a, b], [c]

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

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return sizes that fit no vector."""
        return [{"size_bytes": 8 * n} for n in (1, 7, 1009)]
