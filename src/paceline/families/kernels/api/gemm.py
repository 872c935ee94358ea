"""Matrix products on schedules: what several GEMM techniques share on accelerators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline.families.kernels.api.accelerated import triton_kernel
from paceline.families.kernels.api.problem import Problem
from paceline.families.kernels.api.schedules import Schedule
from paceline.families.kernels.api.tiles import gemm_tile

DESCRIBED_SHARING, SHARING = 96, 2
"""Steps that a worker could make while parts are stored and summed and the cache misses what others load.

Measured on an H100 in bfloat16, with tiles of 128 × 256 × 64 and 128 × 128 × 64: 60 to 130 at five sizes. Steps through
pointers to odd rows or in float32 take three to ten times as long, sums do not.
"""
SHARED_BYTES = 64 * 1024
"""Shared memory where the device does not tell."""


def scheduled_gemm(
    problem: Problem,
    wanted: tuple[int, int, int],
    workers: int,
    schedule: Callable[[list[int], int], Schedule],
) -> Any:
    """Return the Triton kernels of a GEMM on a schedule of steps over output tiles; its ``run`` takes A, B and C.

    Args:
        problem: Its ``m``, ``n`` and ``k`` are the sizes.
        wanted: Rows, columns and steps of the reduction in a tile; 0: what suits the sizes.
        workers: That there should be work for.
        schedule: Deals out the steps of all output tiles, given as one count for each tile, and what sharing a tile
            costs in the time of a worker's steps.

    Raises:
        ImportError: Triton is missing.
    """
    m, n, k = (problem.integer(name) for name in "mnk")
    sizes = (m, n, k)
    described = triton_kernel("triton_gemm", "takes_descriptors")(problem.device, problem.dtype, sizes)
    tile = gemm_tile(
        sizes,
        wanted,
        workers=workers,
        itemsize=problem.dtype.itemsize,
        shared_bytes=_shared_bytes(problem.device),
        deepest=128 if described else 64,
        through_registers=torch.version.hip is not None,
    )
    # Rounded up: what sticks out of the matrices is masked in the kernel.
    steps = -(-k // tile.k)
    count = -(-m // tile.m) * -(-n // tile.n)
    return triton_kernel("triton_gemm", "ScheduledGemm")(
        schedule([steps] * count, DESCRIBED_SHARING if described else SHARING),
        sizes,
        tile,
        problem.dtype,
        problem.device,
        descriptors=described,
    )


def _shared_bytes(device: torch.device) -> int:
    """Return the shared memory that one block of threads may have, in bytes."""
    if device.type != "cuda":
        return SHARED_BYTES
    properties = torch.cuda.get_device_properties(device)
    # What a kernel may ask for is more than what it gets unasked; AMD's devices know one number only.
    return int(getattr(properties, "shared_memory_per_block_optin", 0) or SHARED_BYTES)
