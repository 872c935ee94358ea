"""What the control plane knows about ``cross_entropy``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import WIDE, filled, given
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes, product
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import TOKENS, VOCAB

OPERATION = timed(
    name="cross_entropy",
    place=4,
    summary="Loss of every token: logsumexp of its logits minus the target's logit, in float32.",
    parameters=(TOKENS, VOCAB),
    arguments=(
        given("logits", "tokens", "vocab"),
        given("targets", "tokens", dtype="int64"),
        filled("loss", "tokens", dtype=WIDE),
    ),
    arithmetic=Arithmetic(
        flops=lambda p: 4.0 * product(p, "tokens", "vocab"),
        traffic=lambda p: product(p, "tokens", "vocab") * item_bytes(p) + 12.0 * integer(p, "tokens"),
    ),
)
