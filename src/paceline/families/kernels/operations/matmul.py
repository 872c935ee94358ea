"""Matrix products: plain, grouped by expert, and with weights of a few bits."""

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
    integers,
    min_precise,
    within,
)
from paceline.families.kernels.workloads import expert_tokens


class Gemm(BaseOperation):
    """C (m, n) = A (m, k) · B (k, n)."""

    name = "gemm"
    scalings = (Scaling(inputs=((0, 1),), outputs=(0,)), Scaling(inputs=((1, 1),), outputs=(0,)))

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return A and B; C."""
        m, n, k = params["m"], params["n"], params["k"]
        return (
            [
                TensorSpec(name="a", shape=(m, k), dtype=dtype),
                TensorSpec(name="b", shape=(k, n), dtype=dtype),
            ],
            [TensorSpec(name="c", shape=(m, n), dtype=dtype)],
        )

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw gaussian factors; the magnitude is A's."""
        (a_spec, b_spec), _ = self.tensors(params, dtype)
        a_MK = gaussian(a_spec.shape, dtype, seed=seed, stream=0, magnitude=magnitude, device=device)
        b_KN = gaussian(b_spec.shape, dtype, seed=seed, stream=1, magnitude=1.0, device=device)
        value = a_MK.double() @ b_KN.double()
        accumulate = min_precise(dtype)
        naive = a_MK.to(accumulate) @ b_KN.to(accumulate)
        return Draw(inputs=(a_MK, b_KN), expected=(within(value, naive, dtype),))

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield products that leave out the end of the reduction, or the last row's."""
        a_MK, b_KN = (t.double() for t in draw.inputs)
        kept = max(a_MK.shape[1] - 1, 0)
        yield "short-reduction", (a_MK[:, :kept] @ b_KN[:kept],)
        yield "narrow-inputs", (_narrow(a_MK, draw.inputs[0].dtype) @ _narrow(b_KN, draw.inputs[0].dtype),)

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return sizes that fit no tile."""
        return [{"m": m, "n": n, "k": k} for m, n, k in ((1, 1, 1), (3, 17, 5), (65, 33, 129), (1, 257, 511))]


def _narrow(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Round inputs to about half of their bits: TF32 or bfloat16 in place of float32, 3 bits in place of bfloat16."""
    bits = {torch.float64: 23, torch.float32: 10, torch.float16: 5, torch.bfloat16: 4}[dtype]
    exponent = torch.floor(torch.log2(value.abs().clamp(min=1e-30)))
    step = torch.exp2(exponent - bits)
    return torch.round(value / step) * step


class GroupedGemm(BaseOperation):
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


class DequantGemm(BaseOperation):
    """Y (m, n) = X (m, k) · Wᵀ with W[n, k] = (code − 2^(b−1)) · scale[n, k // group], codes of b bits."""

    name = "dequant_gemm"
    scalings = (Scaling(inputs=((0, 1),), outputs=(0,)),)
    num_weights = 2

    def tensors(self, params: Params, dtype: torch.dtype) -> tuple[list[TensorSpec], list[TensorSpec]]:
        """Return X, and the weights: codes (n, k, uint8, one a byte) and scales (n, k // group); Y."""
        m, n, k, group = (params[name] for name in ("m", "n", "k", "group"))
        return (
            [
                TensorSpec(name="x", shape=(m, k), dtype=dtype),
                TensorSpec(name="codes", shape=(n, k), dtype=torch.uint8),
                TensorSpec(name="scales", shape=(n, k // group), dtype=dtype),
            ],
            [TensorSpec(name="y", shape=(m, n), dtype=dtype)],
        )

    def draw(
        self, params: Params, dtype: torch.dtype, *, seed: int, magnitude: float = 1.0, device: str = "cpu"
    ) -> Draw:
        """Draw uniform codes and positive scales."""
        (x_spec, code_spec, scale_spec), _ = self.tensors(params, dtype)
        x_MK = gaussian(x_spec.shape, dtype, seed=seed, stream=0, magnitude=magnitude, device=device)
        drawn = integers(
            code_spec.shape[0] * code_spec.shape[1], 1 << params["bits"], seed=seed, stream=1, device=device
        )
        codes_NK = drawn.to(torch.uint8).view(code_spec.shape)
        scales_NG = gaussian(scale_spec.shape, dtype, seed=seed, stream=2, magnitude=0.1, device=device).abs()
        weight_NK = self._weights(codes_NK, scales_NG, params, torch.float64)
        accumulate = min_precise(dtype)
        value = x_MK.double() @ weight_NK.T
        # Kernels round the dequantised weight to the working dtype before the product, and may.
        naive = x_MK.to(accumulate) @ weight_NK.to(dtype).to(accumulate).T
        return Draw(
            inputs=(x_MK, codes_NK, scales_NG),
            expected=(within(value, naive, dtype, times=4.0 if dtype != accumulate else 8.0),),
            facts={"weights": weight_NK},
        )

    @staticmethod
    def _weights(codes_NK: Tensor, scales_NG: Tensor, params: Params, dtype: torch.dtype) -> Tensor:
        zero = 2 ** int(params["bits"] - 1)
        centred_NK = codes_NK.to(dtype) - zero
        scale_NK = scales_NG.to(dtype).repeat_interleave(int(params["group"]), dim=1)
        weight_NK: Tensor = centred_NK * scale_NK
        return weight_NK

    def wrong(self, draw: Draw) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
        """Yield products of weights with shifted scales, and without the zero point."""
        x_MK, codes_NK, scales_NG = draw.inputs
        weight_NK = draw.facts["weights"]
        if scales_NG.numel() > 1:
            group = codes_NK.shape[1] // scales_NG.shape[1]
            ratio = scales_NG.double().flatten().roll(1).view(scales_NG.shape) / scales_NG.double()
            yield "shifted-scales", (x_MK.double() @ (weight_NK * ratio.repeat_interleave(group, dim=1)).T,)
        kept = max(weight_NK.shape[1] - 1, 0)
        yield "short-reduction", (x_MK.double()[:, :kept] @ weight_NK.T[:kept],)

    def odd_points(self, params: Params) -> list[dict[str, Any]]:
        """Return small shapes at the same width; the group divides k."""
        return [
            {"m": m, "n": n, "k": k, "group": g, "bits": params["bits"]}
            for m, n, k, g in ((1, 1, 8, 8), (3, 17, 40, 8), (5, 33, 96, 32))
        ]
