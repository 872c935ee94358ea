"""Attention: of a whole prompt, and of one new token over ragged caches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from paceline.families.kernels.operation import (
    BaseOperation,
    Draw,
    Params,
    Scaling,
    TensorSpec,
    gaussian,
    min_precise,
    within,
)
from paceline.families.kernels.workloads import context_lengths

SHARPNESS = 2.0
"""Standard deviation of queries: scores spread by two units, so that single keys matter."""

_SCALINGS = (
    Scaling(inputs=((2, 1),), outputs=(0,)),
    Scaling(inputs=((0, 1), (1, -1)), outputs=()),
)
"""Values scale the output; queries and keys may be scaled against each other."""


def _attend(
    q_HTD: Tensor, k_GSD: Tensor, v_GSD: Tensor, *, causal: bool, rounded: torch.dtype | None = None
) -> Tensor:
    """Attend with scores of d^-1/2 · q·k; H heads share G key heads in turn. Softmax weights may be rounded."""
    share = q_HTD.shape[0] // k_GSD.shape[0]
    outputs = []
    for head in range(q_HTD.shape[0]):
        group = head // share
        scores_TS = q_HTD[head] @ k_GSD[group].T * q_HTD.shape[-1] ** -0.5
        if causal:
            size_t, size_s = scores_TS.shape
            hidden = torch.ones(size_t, size_s, dtype=torch.bool, device=scores_TS.device).triu(
                size_s - size_t + 1
            )
            scores_TS = scores_TS.masked_fill(hidden, float("-inf"))
        weights_TS = torch.softmax(scores_TS, dim=-1)
        if rounded is not None:
            weights_TS = weights_TS.to(rounded).to(weights_TS.dtype)
        outputs.append(weights_TS @ v_GSD[group])
    return torch.stack(outputs)


class AttentionPrefill(BaseOperation):
    """out (batch, heads, tokens, head_dim) of causal self-attention."""

    name = "attention_prefill"
    scalings = _SCALINGS

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
            [_attend(q[i], k[i], v[i], causal=True, rounded=rounded) for i in range(q.shape[0])]
        )

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield attention without the mask, with the mask one off, and with the first key left out."""
        q, k, v = (t.double() for t in draw.inputs)
        if q.shape[2] < 2:
            return
        yield "no-mask", (torch.stack([_attend(q[i], k[i], v[i], causal=False) for i in range(q.shape[0])]),)
        late = draw.expected[0].value.clone()
        late[:, :, 1:] = torch.stack(
            [_attend(q[i][:, 1:], k[i][:, :-1], v[i][:, :-1], causal=True) for i in range(q.shape[0])]
        )
        yield "mask-off-by-one", (late,)

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return odd lengths, one key head, and as many key heads as heads."""
        return [
            {"batch": b, "tokens": t, "heads": h, "kv_heads": g, "head_dim": d}
            for b, t, h, g, d in ((1, 1, 1, 1, 8), (2, 37, 4, 2, 16), (1, 129, 3, 3, 32))
        ]


class AttentionDecode(BaseOperation):
    """out (batch, heads, head_dim): one query of every sequence over that sequence's cached keys and values."""

    name = "attention_decode"
    scalings = _SCALINGS

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
            out = _attend(q[i][:, None].to(dtype), k_GSD, v_GSD, causal=False, rounded=rounded)
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
