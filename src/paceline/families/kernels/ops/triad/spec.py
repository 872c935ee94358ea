"""What the control plane knows about ``triad``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import SIZE_BYTES, whole_elements

OPERATION = timed(
    name="triad",
    place=10,
    summary="STREAM triad: c = a + 3·b.",
    parameters=(SIZE_BYTES,),
    arguments=(
        given("a", "size_bytes // item bytes"),
        given("b", "size_bytes // item bytes"),
        filled("c", "size_bytes // item bytes"),
    ),
    arithmetic=Arithmetic(
        flops=lambda p: 2.0 * integer(p, "size_bytes") / item_bytes(p),
        traffic=lambda p: 3.0 * integer(p, "size_bytes"),
    ),
    check=whole_elements,
)
