"""Products of float8 factors by torch, on devices that have them.

Factors come in float8_e4m3fn. CDNA 3 (MI300X, MI325X) multiplies float8_e4m3fnuz instead, whose exponents have a bias
of eight: the same bits mean half the value there, and 0x80 means no number instead of −0.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

DTYPE = torch.float8_e4m3fn
FNUZ = torch.float8_e4m3fnuz
# ``_scaled_mm`` takes sizes that are multiples of 16.
PROBE_SIZE = 16
MINUS_ZERO = 0x80


def product(a_MK: Tensor, b_NK: Tensor, scale_a: Tensor, scale_b: Tensor, c_MN: Tensor) -> None:
    """Write scale_a · scale_b · A·Bᵀ, as the device's own product does.

    Where a device multiplies float8_e4m3fnuz, factors in float8_e4m3fn are rewritten first, which no value is lost by;
    it costs a pass over their bytes, that a model whose weights lie there in the device's own type does not pay.

    a_MK: (M, K) and b_NK: (N, K) in float8_e4m3fn, or in ``native``; scales: float32 of one element; c_MN: (M, N) in
    the result's dtype.

    Raises:
        RuntimeError: The device multiplies no float8 factors of these sizes.
    """
    if a_MK.dtype == DTYPE and native(a_MK.device) == FNUZ:
        a_MK, b_NK, scale_a, scale_b = _rewritten(a_MK), _rewritten(b_NK), 2.0 * scale_a, 2.0 * scale_b
    _multiply(a_MK, b_NK, scale_a, scale_b, c_MN)


def _multiply(a_MK: Tensor, b_NK: Tensor, scale_a: Tensor, scale_b: Tensor, c_MN: Tensor) -> None:
    # The second factor is column-major, as float8 products on tensor cores want it.
    torch._scaled_mm(a_MK, b_NK.T, scale_a, scale_b, out_dtype=c_MN.dtype, out=c_MN)


def _rewritten(factor: Tensor) -> Tensor:
    """Return half of a factor in float8_e4m3fnuz: its bits, but for −0."""
    bits = factor.view(torch.uint8)
    return bits.masked_fill(bits == MINUS_ZERO, 0).view(FNUZ)


def native(device: torch.device) -> torch.dtype | None:
    """Return the float8 type that a device multiplies, or None where it multiplies none; it is tried once."""
    return _native(device.type)


@cache
def _native(kind: str) -> torch.dtype | None:
    device = torch.device(kind)
    return next((dtype for dtype in (DTYPE, FNUZ) if _refused(device, dtype) is None), None)


def missing(device: torch.device) -> str | None:
    """Return why a device multiplies no float8 factors, in torch's words, or None when it does."""
    # Asked anew: what the answer rests on may be another than when it was kept.
    said = _refused(device, DTYPE)
    # The other type only where the first is refused: what a device refuses late, it may not get over.
    if said is None or _refused(device, FNUZ) is None:
        # Tried now, so that no timed call has to.
        native(device)
        return None
    return f"needs a device that multiplies float8_e4m3fn; torch says of this one: {said}"


def _refused(device: torch.device, dtype: torch.dtype) -> str | None:
    scale = torch.ones((), device=device)
    try:
        a, b = (torch.ones(PROBE_SIZE, PROBE_SIZE, device=device).to(dtype) for _ in range(2))
        out = torch.empty(PROBE_SIZE, PROBE_SIZE, dtype=torch.bfloat16, device=device)
        _multiply(a, b, scale, scale, out)
        if device.type != "cpu":
            torch.accelerator.synchronize()  # what it refuses once it computes is no later call's fault
    # A device says so only when it is asked; older versions of torch lack the dtype or the operator.
    except (RuntimeError, AttributeError, TypeError) as error:
        return str(error).partition("\n")[0]
    return None
