"""What the control plane knows about ``gemm``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.base.families.family import Params
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes, product
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import K, M, N


def _traffic(p: Params) -> float:
    m, n, k = (integer(p, name) for name in "mnk")
    return (m * k + k * n + m * n) * item_bytes(p)


OPERATION = timed(
    name="gemm",
    place=0,
    summary="C = A·B with A (m, k), B (k, n).",
    parameters=(M, N, K),
    arguments=(
        given("a", "m", "k"),
        given("b", "k", "n"),
        filled("c", "m", "n"),
    ),
    arithmetic=Arithmetic(flops=lambda p: 2.0 * product(p, "m", "n", "k"), traffic=_traffic),
)
