"""Products of two matrices: inputs, float64 results and known mistakes."""

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
    min_precise,
    within,
)


class Gemm(BaseOperator):
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
