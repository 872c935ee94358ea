"""A matrix product on a grid of ranks: what makes a point legal; free of torch."""

from __future__ import annotations

import math

from paceline.base.counting import number_of
from paceline.base.families.arguments import changed, filled
from paceline.base.families.family import Params
from paceline.families.collectives.core.planning.legality import estimate_s, problems
from paceline.families.collectives.core.planning.operation import CollectiveOperation
from paceline.families.collectives.core.planning.promises import Exactness
from paceline.families.collectives.core.planning.sizes import number
from paceline.families.collectives.ops.matrix_product.metrics import METRICS
from paceline.families.collectives.ops.matrix_product.parameters import PARAMETERS


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    ranks = number(params, "ranks")
    width = math.isqrt(ranks)
    own: list[str] = []
    if width * width != ranks:
        own.append(f"{number_of(ranks, 'rank forms', 'ranks form')} no square grid")
    elif number(params, "side") % width:
        own.append(f"side {params['side']} cannot be split between {number_of(width, 'row')} of ranks")
    return problems(params, own=own)


OPERATION = CollectiveOperation(
    name="matrix_product",
    summary="A matrix product on a square grid of ranks, one block of each matrix on each.",
    place=12,
    parameters=PARAMETERS,
    arguments=(
        changed("a_SS", "side // √ranks", "side // √ranks"),
        changed("b_SS", "side // √ranks", "side // √ranks"),
        filled("c_SS", "side // √ranks", "side // √ranks"),
    ),
    metrics=METRICS,
    properties=Exactness,
    check=check,
    estimate_s=estimate_s,
)
