"""Products with weights of a few bits: inputs, float64 results and known mistakes."""

from __future__ import annotations

from collections.abc import Iterator
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
    integers,
    min_precise,
    within,
)


class DequantGemm(BaseOperator):
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
