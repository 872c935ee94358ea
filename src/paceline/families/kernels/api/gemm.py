"""Matrix products on schedules: what several GEMM techniques share on accelerators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.families.kernels.api.accelerated import triton_kernel
from paceline.families.kernels.api.problem import Problem
from paceline.families.kernels.api.schedules import Schedule


def scheduled_gemm(
    problem: Problem, tiles: tuple[int, int, int], schedule: Callable[[list[int]], Schedule]
) -> Any:
    """Return the Triton kernels of a GEMM on a schedule of steps over output tiles; its ``run`` takes A, B and C.

    Args:
        problem: Its ``m``, ``n`` and ``k`` are the sizes.
        tiles: Rows, columns and steps of the reduction in a tile.
        schedule: Deals out the steps of all output tiles, given as one count for each tile.

    Raises:
        ImportError: Triton is missing.
    """
    m, n, k = (problem.integer(name) for name in "mnk")
    # Rounded up: what sticks out of the matrices is masked in the kernel.
    steps = -(-k // tiles[2])
    count = -(-m // tiles[0]) * -(-n // tiles[1])
    return triton_kernel("triton_gemm", "ScheduledGemm")(
        schedule([steps] * count), (m, n, k), tiles, problem.device
    )
