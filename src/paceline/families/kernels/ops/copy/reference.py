"""Copies of arrays: inputs and results."""

from __future__ import annotations

from typing import Any

import torch

from paceline.families.kernels.core.operators import (
    BaseOperator,
    Draw,
    Params,
    Scaling,
    TensorSpec,
    exactly,
    gaussian,
)


class Copy(BaseOperator):
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
