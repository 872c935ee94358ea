"""What the control plane knows about ``lm_head_loss``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import WIDE, filled, given
from paceline.base.families.family import Params
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes, product
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import HIDDEN, TOKENS, VOCAB


def _traffic(p: Params) -> float:
    return 2.0 * integer(p, "hidden") * (integer(p, "tokens") + integer(p, "vocab")) * item_bytes(p)


OPERATION = timed(
    name="lm_head_loss",
    place=5,
    summary="Mean cross-entropy of hidden·Wᵀ and its gradients with respect to hidden and W.",
    parameters=(TOKENS, HIDDEN, VOCAB),
    arguments=(
        given("hidden", "tokens", "hidden"),
        given("weight", "vocab", "hidden"),
        given("targets", "tokens", dtype="int64"),
        given("scale", "1", dtype=WIDE, doc="a factor of the loss and its gradients"),
        filled("loss", "1", dtype=WIDE),
        filled("grad_hidden", "tokens", "hidden"),
        filled("grad_weight", "vocab", "hidden"),
    ),
    arithmetic=Arithmetic(flops=lambda p: 6.0 * product(p, "tokens", "hidden", "vocab"), traffic=_traffic),
)
