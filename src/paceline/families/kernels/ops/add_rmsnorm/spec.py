"""What the control plane knows about ``add_rmsnorm``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes, product
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import HIDDEN, TOKENS

OPERATION = timed(
    name="add_rmsnorm",
    place=3,
    summary="s = x + residual; y = s / rms(s) · weight; both are written.",
    parameters=(TOKENS, HIDDEN),
    arguments=(
        given("x", "tokens", "hidden"),
        given("residual", "tokens", "hidden"),
        given("weight", "hidden"),
        filled("y", "tokens", "hidden", doc="the normed sum"),
        filled("s", "tokens", "hidden", doc="the sum"),
    ),
    arithmetic=Arithmetic(
        flops=lambda p: 5.0 * product(p, "tokens", "hidden"),
        traffic=lambda p: (4.0 * product(p, "tokens", "hidden") + integer(p, "hidden")) * item_bytes(p),
    ),
)
