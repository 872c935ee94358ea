"""Metrics of ``simulate`` and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.serving.core.planning.metrics import ERRORS, PLAYED, PREFIX_CACHE_HIT_RATE

METRICS: tuple[Metric, ...] = (
    PREFIX_CACHE_HIT_RATE,
    *PLAYED,
    Metric(
        name="kv_moved",
        unit="B",
        better="lower",
        doc="Keys and values that moved from one memory to another.",
        contract={"counted": "by the simulator: tokens moved times bytes of a token's keys and values"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="weight_copies",
        unit="count",
        better="lower",
        doc="Copies of the weights on one request's way through a deployment.",
        contract={
            "counted": "memories that transfers join, the most of any group; a memory has a copy of its own"
        },
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    *ERRORS,
)
