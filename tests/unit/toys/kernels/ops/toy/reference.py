"""Negation: inputs, and results that every technique is held to."""

from __future__ import annotations

from typing import Any

import torch

from paceline.families.kernels.core.operators import BaseOperator, Draw, Params, TensorSpec, gaussian, within


class Toy(BaseOperator):
    """b = -a."""

    name = "toy"

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return a; b."""
        shape = (params["size_bytes"] // dtype.itemsize,)
        a, b = (TensorSpec(name=name, shape=shape, dtype=dtype) for name in "ab")
        return [a], [b]

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw gaussian numbers."""
        (spec,), _ = self.tensors(params, dtype)
        a_N = gaussian(spec.shape, dtype, seed=seed, stream=0, magnitude=magnitude, device=device)
        return Draw(inputs=(a_N,), expected=(within(-a_N.double(), -a_N, dtype),))

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return sizes that fit no vector."""
        return [{"size_bytes": 8 * n} for n in (1, 7, 1009)]
