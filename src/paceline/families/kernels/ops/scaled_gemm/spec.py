"""What the control plane knows about ``scaled_gemm``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.base.families.family import Params
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes, product
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import K, M, N

MULTIPLE = 16
"""Tensor cores read float8 in pieces of this many elements (cuBLASLt refuses others)."""


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    problems: list[str] = []
    if params["dtype"] == "float64":
        problems.append("scaled_gemm gives float32, bfloat16 or float16, not float64")
    if any(integer(params, side) % MULTIPLE for side in "nk"):
        problems.append(f"scaled_gemm needs n and k that are multiples of {MULTIPLE}")
    return problems


def _traffic(p: Params) -> float:
    m, n, k = (integer(p, name) for name in "mnk")
    return float((m + n) * k + m * n * item_bytes(p) + 2 * 4)


OPERATION = timed(
    name="scaled_gemm",
    place=1,
    summary="C = scale_a · scale_b · A·Bᵀ with A (m, k) and B (n, k) in float8_e4m3fn; dtype is that of C.",
    parameters=(M, N, K),
    arguments=(
        given("a", "m", "k", dtype="float8_e4m3fn"),
        given("b", "n", "k", dtype="float8_e4m3fn"),
        given("scale_a", dtype="float32"),
        given("scale_b", dtype="float32"),
        filled("c", "m", "n"),
    ),
    arithmetic=Arithmetic(
        flops=lambda p: 2.0 * product(p, "m", "n", "k"), traffic=_traffic, operands="float8_e4m3fn"
    ),
    check=check,
)
