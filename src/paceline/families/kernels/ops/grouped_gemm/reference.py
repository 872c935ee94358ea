"""Products grouped by expert: inputs, float64 results and known mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
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
from paceline.families.kernels.ops.grouped_gemm.routing import expert_tokens


class GroupedGemm(BaseOperator):
    """Y (tokens, n): each expert's rows of X (tokens, k) times its W (experts, k, n)."""

    name = "grouped_gemm"
    scalings = (Scaling(inputs=((0, 1),), outputs=(0,)), Scaling(inputs=((2, 1),), outputs=(0,)))

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return X, the experts' row offsets (experts + 1, int64) and W; Y."""
        tokens, experts, n, k = (params[name] for name in ("tokens", "experts", "n", "k"))
        return (
            [
                TensorSpec(name="x", shape=(tokens, k), dtype=dtype),
                TensorSpec(name="offsets", shape=(experts + 1,), dtype=torch.int64),
                TensorSpec(name="w", shape=(experts, k, n), dtype=dtype),
            ],
            [TensorSpec(name="y", shape=(tokens, n), dtype=dtype)],
        )

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw gaussian tokens and weights; the routing follows from the parameters."""
        (x_spec, _, w_spec), _ = self.tensors(params, dtype)
        x_TK = gaussian(x_spec.shape, dtype, seed=seed, stream=0, magnitude=magnitude, device=device)
        w_EKN = gaussian(w_spec.shape, dtype, seed=seed, stream=1, magnitude=1.0, device=device)
        counts = torch.tensor([0, *expert_tokens(params)])
        offsets = counts.cumsum(0).to(device)
        accumulate = min_precise(dtype)
        value, naive = (
            self._product(x_TK.to(d), offsets.tolist(), w_EKN, d) for d in (torch.float64, accumulate)
        )
        return Draw(inputs=(x_TK, offsets, w_EKN), expected=(within(value, naive, dtype),))

    @staticmethod
    def _product(x_TK: Tensor, offsets: list[int], w_EKN: Tensor, dtype: torch.dtype) -> Tensor:
        parts = [x_TK[begin:end] @ w_EKN[e].to(dtype) for e, (begin, end) in enumerate(pairwise(offsets))]
        return torch.cat(parts)

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield a product in which every token went to its neighbour expert."""
        x_TK, offsets, w_EKN = draw.inputs
        yield (
            "wrong-expert",
            (self._product(x_TK.double(), offsets.tolist(), w_EKN.roll(1, 0), torch.float64),),
        )

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return few and many experts, some without a token."""
        return [
            {"tokens": t, "experts": e, "n": n, "k": k}
            for t, e, n, k in ((1, 3, 5, 7), (37, 8, 17, 33), (64, 1, 3, 65))
        ]
