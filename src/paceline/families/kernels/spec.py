"""The kernels family, put together from its operations; free of torch."""

from __future__ import annotations

from dataclasses import replace

from paceline.base.families.operation import computed_metrics_in, family_of, operations_in
from paceline.families.kernels.core.planning.arithmetic import rates
from paceline.families.kernels.core.planning.operation import TimedOperation

_OPERATIONS = operations_in("paceline.families.kernels")

_family = family_of(
    _OPERATIONS,
    name="kernels",
    summary="Operations on one device: latency, error, memory, and how close each comes to what the device can do.",
    in_order=(("vocab", "experts"), ("num_shapes", "rows")),
    computed=computed_metrics_in("paceline.families.kernels"),
    default_metrics=("latency",),
)
FAMILY = replace(
    _family,
    derived=(
        *rates({o.name: o.arithmetic for o in _OPERATIONS if isinstance(o, TimedOperation)}),
        *_family.derived,
    ),
)
