"""What the control plane knows about ``toy``, free of torch."""

from __future__ import annotations

from paceline.families.kernels.core.planning.arithmetic import Arithmetic, integer, item_bytes
from paceline.families.kernels.core.planning.operation import timed
from paceline.families.kernels.core.planning.parameters import SIZE_BYTES, whole_elements

OPERATION = timed(
    name="toy",
    place=99,
    summary="negation: b = -a.",
    parameters=(SIZE_BYTES,),
    arithmetic=Arithmetic(
        flops=lambda p: integer(p, "size_bytes") / item_bytes(p),
        traffic=lambda p: 2.0 * integer(p, "size_bytes"),
    ),
    check=whole_elements,
)
