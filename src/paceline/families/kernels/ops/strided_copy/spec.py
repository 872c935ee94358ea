"""What the control plane knows about ``strided_copy``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.base.families.family import Params
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes, product
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import number

PARAMETERS = (
    number("rows", "Rows that are copied.", 1024),
    number("columns", "Elements copied of each row.", 16),
    number("row_stride", "Elements between the starts of neighbouring rows.", 64),
)


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    if integer(params, "row_stride") < integer(params, "columns"):
        return ["row_stride is smaller than columns: rows would overlap"]
    return []


OPERATION = timed(
    name="strided_copy",
    place=11,
    summary="Blocks of columns of a matrix are gathered into a contiguous one.",
    parameters=PARAMETERS,
    arguments=(
        given("wide", "rows", "row_stride"),
        filled("packed", "rows", "columns"),
    ),
    arithmetic=Arithmetic(
        flops=lambda p: 0.0,
        traffic=lambda p: 2.0 * product(p, "rows", "columns") * item_bytes(p),
    ),
    check=check,
)
