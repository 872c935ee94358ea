"""What the control plane knows about ``dequant_gemm``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.base.families.family import Params
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes, product
from paceline.families.kernels.core.planning.metrics import WEIGHT_BYTES
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import K, M, N, number

MAX_BITS = 8
PARAMETERS = (
    number("bits", "Bits of one weight, 1 to 8.", 4),
    number("group", "Weights of one row of the reduction that share a scale.", 64),
)


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    problems: list[str] = []
    if integer(params, "bits") > MAX_BITS:
        problems.append(f"weights have 1 to {MAX_BITS} bits, not {params['bits']}")
    if integer(params, "k") % integer(params, "group"):
        problems.append(f"k {params['k']} is not a multiple of group {params['group']}")
    return problems


def _traffic(p: Params) -> float:
    m, n, k = (integer(p, name) for name in "mnk")
    codes = -(-product(p, "n", "k", "bits") // 8)  # packed at their bit width
    scales = n * (k // integer(p, "group"))
    return codes + (scales + m * k + m * n) * item_bytes(p)


OPERATION = timed(
    name="dequant_gemm",
    place=8,
    summary="C = X·(codes · scale)ᵀ with weights of 1 to 8 bits and one scale for each group of k.",
    parameters=(M, N, K, *PARAMETERS),
    arguments=(
        given("x", "m", "k"),
        given("codes", "n", "k", dtype="uint8", doc="a weight is (code - 2 ** (bits - 1)) * scale"),
        given("scales", "n", "k // group"),
        filled("y", "m", "n"),
    ),
    arithmetic=Arithmetic(flops=lambda p: 2.0 * product(p, "m", "n", "k"), traffic=_traffic),
    check=check,
    metrics=(WEIGHT_BYTES,),
)
