"""Metrics of gossip, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import NOT_NEGATIVE, Metric
from paceline.families.collectives.core.planning.metrics import CALL

CONSENSUS_DISTANCE_RATIO = Metric(
    name="consensus_distance_ratio",
    unit="ratio",
    bounds=NOT_NEGATIVE,
    better="lower",
    doc="Sum of squared distances from the mean after one exchange, over the same before it.",
    contract={"reference": "float64, all ranks' buffers before and after the call"},
    statistic="mean",
    compared_by="difference",
)

METRICS: tuple[Metric, ...] = (*CALL, CONSENSUS_DISTANCE_RATIO)
