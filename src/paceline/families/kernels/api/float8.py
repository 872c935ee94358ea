"""Products of float8 factors by torch, on devices that have them."""

from __future__ import annotations

import torch
from torch import Tensor

DTYPE = torch.float8_e4m3fn
# ``_scaled_mm`` takes sizes that are multiples of 16.
PROBE_SIZE = 16


def product(a_MK: Tensor, b_NK: Tensor, scale_a: Tensor, scale_b: Tensor, c_MN: Tensor) -> None:
    """Write scale_a · scale_b · A·Bᵀ, as the device's own product does.

    a_MK: (M, K) and b_NK: (N, K) in float8_e4m3fn; scales: float32 of one element; c_MN: (M, N) in the result's dtype.

    Raises:
        RuntimeError: The device multiplies no float8 factors of these sizes.
    """
    # The second factor is column-major, as float8 products on tensor cores want it.
    torch._scaled_mm(a_MK, b_NK.T, scale_a, scale_b, out_dtype=c_MN.dtype, out=c_MN)


def missing(device: torch.device) -> str | None:
    """Return why a device multiplies no float8 factors, in torch's words, or None when it does."""
    scale = torch.ones((), device=device)
    try:
        a, b = (torch.ones(PROBE_SIZE, PROBE_SIZE, device=device).to(DTYPE) for _ in range(2))
        product(a, b, scale, scale, torch.empty(PROBE_SIZE, PROBE_SIZE, dtype=torch.bfloat16, device=device))
    # A device says so only when it is asked; older versions of torch lack the dtype or the operator.
    except (RuntimeError, AttributeError, TypeError) as error:
        said = str(error).partition("\n")[0]
        return f"needs a device that multiplies float8_e4m3fn; torch says of this one: {said}"
    return None
