"""Attention of one new token over ragged caches: inputs, float64 results and known mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.api.context_lengths import context_lengths
from paceline.families.kernels.core.attention import SCALINGS, SHARPNESS, attend
from paceline.families.kernels.core.operators import (
    BaseOperator,
    Draw,
    Params,
    TensorSpec,
    gaussian,
    min_precise,
    within,
)


class AttentionDecode(BaseOperator):
    """out (batch, heads, head_dim): one query of every sequence over that sequence's cached keys and values."""

    name = "attention_decode"
    scalings = SCALINGS

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return q (batch, heads, head_dim), k and v (all cached tokens, kv_heads, head_dim), offsets (batch + 1)."""
        batch, heads, groups, width = (params[n] for n in ("batch", "heads", "kv_heads", "head_dim"))
        cache = (sum(context_lengths(params)), groups, width)
        return (
            [
                TensorSpec(name="q", shape=(batch, heads, width), dtype=dtype),
                TensorSpec(name="k", shape=cache, dtype=dtype),
                TensorSpec(name="v", shape=cache, dtype=dtype),
                TensorSpec(name="offsets", shape=(batch + 1,), dtype=torch.int64),
            ],
            [TensorSpec(name="out", shape=(batch, heads, width), dtype=dtype)],
        )

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw gaussian queries and caches; the lengths follow from the parameters."""
        specs, _ = self.tensors(params, dtype)
        q, k, v = (
            gaussian(s.shape, dtype, seed=seed, stream=i, magnitude=m, device=device)
            for i, (s, m) in enumerate(zip(specs[:3], (SHARPNESS, 1.0, magnitude), strict=True))
        )
        offsets = torch.tensor([0, *context_lengths(params)]).cumsum(0).to(device)
        value = self._all(q, k, v, offsets, torch.float64)
        accumulate = min_precise(dtype)
        rounded = dtype if dtype != accumulate else None
        naive = self._all(q, k, v, offsets, accumulate, rounded)
        return Draw(
            inputs=(q, k, v, offsets),
            expected=(within(value, naive, dtype, times=8.0 if rounded is None else 4.0),),
        )

    @staticmethod
    def _all(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        offsets: Tensor,
        dtype: torch.dtype,
        rounded: torch.dtype | None = None,
        skip: int = 0,
    ) -> Tensor:
        outputs = []
        bounds = offsets.tolist()
        for i, (begin, end) in enumerate(pairwise(bounds)):
            k_GSD = k[begin : max(end - skip, begin + 1)].to(dtype).transpose(0, 1)
            v_GSD = v[begin : max(end - skip, begin + 1)].to(dtype).transpose(0, 1)
            out = attend(q[i][:, None].to(dtype), k_GSD, v_GSD, causal=False, rounded=rounded)
            outputs.append(out[:, 0])
        return torch.stack(outputs)

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield attention that leaves out the end of every cache, and one that takes the neighbour's key heads."""
        q, k, v, offsets = draw.inputs
        yield "dropped-end", (self._all(q, k, v, offsets, torch.float64, skip=8),)
        if k.shape[1] > 1:
            yield "wrong-group", (self._all(q, k.roll(1, 1), v, offsets, torch.float64),)

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return ragged batches of odd lengths."""
        spread = params.get("spread", "linear")
        return [
            {"batch": b, "context": c, "spread": spread, "heads": h, "kv_heads": g, "head_dim": d}
            for b, c, h, g, d in ((1, 1, 2, 1, 8), (3, 37, 4, 2, 16), (5, 257, 6, 6, 32))
        ]
