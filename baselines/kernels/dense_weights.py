"""Low-bit weights expanded ahead of time: the dense product that they compete with.

Algorithm: codes and scales become a matrix of the working dtype once, when weights are packed; a call is one product
by PyTorch's operator.

Cost: all bytes of dense weights are read in every call, 16 / b of what codes of b bits take. Packing is not timed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(
    name="dense-weights",
    family="kernels",
    implements=("dequant_gemm",),
    summary="weights expanded once, ahead of time: a dense product",
)
class DenseWeights:
    """Y (M, N) = X (M, K) · Wᵀ; J groups of K share a scale."""

    def __init__(self, problem: Problem) -> None:
        self.zero = 2 ** (problem.integer("bits") - 1)

    def pack(self, codes_NK: Tensor, scales_NJ: Tensor) -> tuple[Tensor]:
        """Expand: (code − 2^(b−1)) · scale, rounded to the scales' dtype."""
        # Converted first: codes are unsigned bytes, and subtracting from them would wrap around.
        centred_NK = codes_NK.to(scales_NJ.dtype) - self.zero
        weight_NJG = centred_NK.view(*scales_NJ.shape, -1) * scales_NJ[:, :, None]
        return (weight_NJG.view(codes_NK.shape),)

    def run(self, x_MK: Tensor, weight_NK: Tensor, y_MN: Tensor) -> None:
        """Multiply."""
        torch.mm(x_MK, weight_NK.T, out=y_MN)
