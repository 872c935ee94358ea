"""Metrics of ranks that share experts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import TIME_MARGIN, Metric
from paceline.families.training.core.planning.byte_metrics import BYTE_METRICS
from paceline.families.training.core.planning.metrics import RUN_METRICS, TARGETS, TIMES
from paceline.families.training.core.planning.rank_metrics import RANK_METRICS

MOVED: tuple[Metric, ...] = (
    Metric(
        name="moved_bytes",
        unit="B",
        better="lower",
        doc="Weights that the busiest rank came to own between two steps, mean over steps.",
        contract={
            "counted": "runs of weights that a rank owns after a step, as a checkpoint has them, and did not before"
        },
        statistic="mean",
    ),
    Metric(
        name="dispatch_s",
        unit="s",
        better="lower",
        doc="Putting tokens into the slots of their experts and gathering them, for one layer, forward and backward.",
        contract={
            "timer": "the host's performance counter around the technique's encode and decode and their backward",
            "data": "tokens and routing drawn anew for every sample, after training; each result is checked",
            "sample": "the slowest rank",
        },
        margin=TIME_MARGIN,
    ),
)
"""Weights that change hands, and tokens on their way."""

METRICS: tuple[Metric, ...] = (*RUN_METRICS, *BYTE_METRICS, *MOVED, *TIMES, *RANK_METRICS, *TARGETS)
