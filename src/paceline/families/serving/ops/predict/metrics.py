"""Metrics of ``predict`` and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import NOT_NEGATIVE, Metric
from paceline.families.serving.core.planning.metrics import ERRORS, EXECUTED, share

METRICS: tuple[Metric, ...] = (
    *ERRORS,
    share(
        "plan_regret",
        "How much longer the plan that was predicted to be best takes than the best one.",
        "lower",
        EXECUTED | {"value": "executed makespan of the chosen plan / least executed makespan - 1"},
        NOT_NEGATIVE,
    ),
)
