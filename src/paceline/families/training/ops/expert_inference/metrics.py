"""Metrics of ranks that share experts at inference; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.training.core.planning.byte_metrics import BYTE_METRICS
from paceline.families.training.core.planning.metrics import RUN_METRICS, TARGETS, TIMES
from paceline.families.training.core.planning.rank_metrics import RANK_METRICS

WAYS: tuple[Metric, ...] = (
    Metric(
        name="cross_rank_moves_per_token",
        unit="moves",
        better="lower",
        doc="How often a token's next expert lies on another rank than its last one, mean over tokens: of the model's "
        "layers less one.",
        contract={
            "routes": "those of all tokens of the run, which techniques could not foresee",
            "ranks": "of experts: the rank that holds an expert's weights when the run has ended",
        },
        statistic="mean",
    ),
    Metric(
        name="row_messages",
        unit="messages",
        better="lower",
        doc="Messages that hold a token's row or more, which the busiest rank sends in one step.",
        contract={
            "counter": "sent messages of at least 4 bytes times the model's width",
            "sample": "of the run over its steps",
        },
        statistic="mean",
    ),
)
"""How often tokens change ranks."""

METRICS: tuple[Metric, ...] = (*RUN_METRICS, *BYTE_METRICS, *WAYS, *TIMES, *RANK_METRICS, *TARGETS)
