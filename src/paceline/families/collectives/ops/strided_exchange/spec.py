"""The exchange of a strided block: what makes a point legal; free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import changed, given
from paceline.base.families.family import Params
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.metrics import CALL
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.promises import Exactness
from paceline.families.collectives.core.planning.sizes import ITEM_BYTES, number
from paceline.families.collectives.ops.strided_exchange.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    item = ITEM_BYTES[str(params["dtype"])]
    own = [
        f"{key} {params[key]} is not a multiple of the element size {item}"
        for key in ("block_bytes", "stride_bytes")
        if number(params, key) % item
    ]
    if number(params, "stride_bytes") < number(params, "block_bytes"):
        own.append("stride_bytes is smaller than block_bytes: blocks would overlap")
    return problems(params, own=own)


OPERATION = CollectiveOperation(
    name="strided_exchange",
    summary="A strided block is packed, sent to the next rank, and unpacked there.",
    place=11,
    parameters=PARAMETERS,
    arguments=(
        given("source", "extent", doc="layout_of(problem) says which elements are the block"),
        changed("target", "extent"),
    ),
    metrics=CALL,
    properties=Exactness,
    check=check,
    estimate_s=estimate_s,
)
