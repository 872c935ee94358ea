"""Attention of a whole prompt: inputs, float64 results and known mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

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


class AttentionPrefill(BaseOperator):
    """out (batch, heads, tokens, head_dim) of causal self-attention."""

    name = "attention_prefill"
    scalings = SCALINGS

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return q (batch, heads, tokens, head_dim), k and v (batch, kv_heads, tokens, head_dim); out like q."""
        batch, heads, groups = params["batch"], params["heads"], params["kv_heads"]
        tokens, width = params["tokens"], params["head_dim"]
        kv = (batch, groups, tokens, width)
        return (
            [
                TensorSpec(name="q", shape=(batch, heads, tokens, width), dtype=dtype),
                TensorSpec(name="k", shape=kv, dtype=dtype),
                TensorSpec(name="v", shape=kv, dtype=dtype),
            ],
            [TensorSpec(name="out", shape=(batch, heads, tokens, width), dtype=dtype)],
        )

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw gaussian queries, keys and values; the magnitude is the values'."""
        specs, _ = self.tensors(params, dtype)
        q, k, v = (
            gaussian(s.shape, dtype, seed=seed, stream=i, magnitude=m, device=device)
            for i, (s, m) in enumerate(zip(specs, (SHARPNESS, 1.0, magnitude), strict=True))
        )
        value = self._all(q.double(), k.double(), v.double())
        accumulate = min_precise(dtype)
        rounded = dtype if dtype != accumulate else None
        naive = self._all(q.to(accumulate), k.to(accumulate), v.to(accumulate), rounded)
        return Draw(
            inputs=(q, k, v),
            expected=(within(value, naive, dtype, times=8.0 if rounded is None else 4.0),),
        )

    @staticmethod
    def _all(q: Tensor, k: Tensor, v: Tensor, rounded: torch.dtype | None = None) -> Tensor:
        return torch.stack(
            [attend(q[i], k[i], v[i], causal=True, rounded=rounded) for i in range(q.shape[0])]
        )

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield attention without the mask, with the mask one off, and with the first key left out."""
        q, k, v = (t.double() for t in draw.inputs)
        if q.shape[2] < 2:
            return
        yield "no-mask", (torch.stack([attend(q[i], k[i], v[i], causal=False) for i in range(q.shape[0])]),)
        late = draw.expected[0].value.clone()
        late[:, :, 1:] = torch.stack(
            [attend(q[i][:, 1:], k[i][:, :-1], v[i][:, :-1], causal=True) for i in range(q.shape[0])]
        )
        yield "mask-off-by-one", (late,)

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return odd lengths, one key head, and as many key heads as heads."""
        return [
            {"batch": b, "tokens": t, "heads": h, "kv_heads": g, "head_dim": d}
            for b, t, h, g, d in ((1, 1, 1, 1, 8), (2, 37, 4, 2, 16), (1, 129, 3, 3, 32))
        ]
