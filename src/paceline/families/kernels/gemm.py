"""Matrix products on schedules: what several GEMM techniques share on accelerators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.families.kernels.accelerated import triton_kernel
from paceline.families.kernels.problem import Problem
from paceline.families.kernels.schedules import Schedule


def scheduled_gemm(
    problem: Problem, tiles: tuple[int, int, int], schedule: Callable[[list[int]], Schedule]
) -> Any:
    """Return the Triton kernels of a GEMM on a schedule of steps over output tiles; its ``run`` takes A, B and C."""
    m, n, k = (problem.integer(name) for name in "mnk")
    steps = -(-k // tiles[2])
    count = -(-m // tiles[0]) * -(-n // tiles[1])
    return triton_kernel("triton_gemm", "ScheduledGemm")(
        schedule([steps] * count), (m, n, k), tiles, problem.device
    )
