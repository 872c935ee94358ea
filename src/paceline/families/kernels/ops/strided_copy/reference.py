"""Copies of blocks of columns: inputs and results."""

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


class StridedCopy(BaseOperator):
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
