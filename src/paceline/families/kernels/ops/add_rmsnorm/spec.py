"""What the control plane knows about ``add_rmsnorm``, free of torch."""

from __future__ import annotations

from paceline.families.kernels.core.arithmetic import Arithmetic, integer, item_bytes, product
from paceline.families.kernels.core.operation import timed
from paceline.families.kernels.core.parameters import HIDDEN, TOKENS

OPERATION = timed(
    name="add_rmsnorm",
    place=3,
    summary="s = x + residual; y = s / rms(s) · weight; both are written.",
    parameters=(TOKENS, HIDDEN),
    arithmetic=Arithmetic(
        flops=lambda p: 5.0 * product(p, "tokens", "hidden"),
        traffic=lambda p: (4.0 * product(p, "tokens", "hidden") + integer(p, "hidden")) * item_bytes(p),
    ),
)
