"""What the control plane knows about ``copy``, free of torch."""

from __future__ import annotations

from paceline.base.families.arguments import filled, given
from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import SIZE_BYTES, whole_elements

OPERATION = timed(
    name="copy",
    place=9,
    summary="STREAM copy: c = a.",
    parameters=(SIZE_BYTES,),
    arguments=(
        given("a", "size_bytes // item bytes"),
        filled("c", "size_bytes // item bytes"),
    ),
    arithmetic=Arithmetic(flops=lambda p: 0.0, traffic=lambda p: 2.0 * integer(p, "size_bytes")),
    check=whole_elements,
)
