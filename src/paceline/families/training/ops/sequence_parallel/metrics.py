"""Metrics of ranks that share every sequence; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.training.core.planning.byte_metrics import BYTE_METRICS
from paceline.families.training.core.planning.metrics import RUN_METRICS, TARGETS, TIMES
from paceline.families.training.core.planning.rank_metrics import RANK_METRICS

FLOP_IMBALANCE = Metric(
    name="flop_imbalance",
    unit="ratio",
    better="lower",
    doc="Operations of attention, forward and backward, on the rank that has most over the mean of ranks that "
    "share sequences.",
    contract={
        "counter": "torch's counter of operators, during one more forward and backward after training",
        "counted": "batched products and fused attention; products with weights have no batch",
    },
    statistic="mean",
)

METRICS: tuple[Metric, ...] = (*RUN_METRICS, *BYTE_METRICS, FLOP_IMBALANCE, *TIMES, *RANK_METRICS, *TARGETS)
