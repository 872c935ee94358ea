"""The collectives family, put together from its operations; free of torch."""

from __future__ import annotations

from paceline.base.families.operation import computed_metrics_in, family_of, operations_in
from paceline.families.collectives.core.planning.quantities import QUANTITIES

FAMILY = family_of(
    operations_in("paceline.families.collectives"),
    name="collectives",
    summary="Operations over ranks: latency, bytes on the wire, and error.",
    in_order=(
        ("root", "group_ranks"),
        ("exposed_s", "consensus_distance_ratio"),
        ("consensus_distance_ratio", "held_bytes"),
        ("held_bytes", "norm_rows"),
    ),
    computed=computed_metrics_in("paceline.families.collectives"),
    quantities=QUANTITIES,
    default_metrics=("latency", "wire_bytes"),
)
