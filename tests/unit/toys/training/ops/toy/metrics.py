"""Metrics of ``toy``; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.training.core.planning.byte_metrics import BYTE_METRICS
from paceline.families.training.core.planning.metrics import RUN_METRICS, TARGETS, TIMES
from paceline.families.training.core.planning.rank_metrics import RANK_METRICS

METRICS: tuple[Metric, ...] = (*RUN_METRICS, *BYTE_METRICS, *TIMES, *RANK_METRICS, *TARGETS)
