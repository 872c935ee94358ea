"""Distributions of input payloads, drawn so that every rank can rebuild every other rank's input.

gaussian        N(0, 1)
heavy-tailed    Student's t with 3 degrees of freedom: rare values tens of standard deviations out
gradient-like   N(0, 1) times a log-normal scale (σ = 1.5) for each run of 1024 elements, times 1e-3, as layers differ
sparse          N(0, 1) on one element in a hundred, zero elsewhere
integers        whole numbers small enough that every sum over ranks is exact in the dtype
shared-sign     ±1 with one pattern for all ranks: lossless for sign, ternary and uniform quantisers
shared-spike    ±1 on one element in 4096, the same for all ranks, zero elsewhere: lossless for sparsifiers

The last two are inputs on which a lossy technique must be exact; they find dropped or misplaced elements, which the
statistical test of a lossy technique cannot see.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.base.draws import stream_seed

SPIKE_STRIDE = 4096
_RUN = 1024
_MANTISSA_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def draw(payload: str, count: int, *, seed: int, rank: int, world_size: int, dtype: torch.dtype) -> Tensor:
    """Return rank ``rank``'s input of ``count`` elements in ``dtype`` on the CPU, the same on whichever rank asks."""
    shared = payload.startswith("shared-")
    # On the CPU whatever the device, so that all ranks draw the same; from its own input no rank can tell the others'.
    generator = torch.Generator().manual_seed(stream_seed(seed, "all" if shared else rank))
    if payload == "integers" or not dtype.is_floating_point:
        limit = integer_limit(dtype, world_size)
        return torch.randint(-limit, limit + 1, (count,), generator=generator).to(dtype)
    if payload == "shared-sign":
        return (torch.randint(0, 2, (count,), generator=generator) * 2 - 1).to(dtype)
    if payload == "shared-spike":
        values = torch.zeros(count, dtype=dtype)
        start = int(torch.randint(0, SPIKE_STRIDE, (1,), generator=generator))
        # The remainder, so that buffers shorter than the stride get their spike as well.
        spikes = values[start % max(count, 1) :: SPIKE_STRIDE]
        spikes.copy_((torch.randint(0, 2, spikes.shape, generator=generator) * 2 - 1).to(dtype))
        return values
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    values = torch.randn(count, generator=generator, dtype=wide)
    if payload == "heavy-tailed":
        squares = torch.zeros(count, dtype=wide)
        for _ in range(3):
            squares += torch.randn(count, generator=generator, dtype=wide).square_()
        # Student's t is a normal number over √(χ²/3) of three more; the clamp keeps one unlucky draw from infinity.
        values /= (squares / 3).sqrt_().clamp_(min=1e-6)
    elif payload == "gradient-like":
        runs = (count + _RUN - 1) // _RUN
        scales = torch.exp(1.5 * torch.randn(runs, generator=generator, dtype=wide)) * 1e-3
        values *= scales.repeat_interleave(_RUN)[:count]
    elif payload == "sparse":
        values *= torch.rand(count, generator=generator) < 0.01
    elif payload != "gaussian":
        raise ValueError(f"unknown payload '{payload}'")
    return values.to(dtype)


def integer_limit(dtype: torch.dtype, world_size: int) -> int:
    """Return the largest m such that sums of ``2 · world_size`` integers of [−m, m] are exact in ``dtype``."""
    bits = _MANTISSA_BITS.get(dtype, 30)
    return max(min((1 << bits) // (2 * world_size), 1 << 20) - 1, 1)
