"""Metrics of all-reduce, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.collectives.core.planning.metrics import (
    ERRORS,
    INTER_GROUP_BYTES,
    KERNEL,
    LATENCY,
    MESSAGES,
    SPLIT,
    WIRE,
    seconds,
)

BARE_LOOP_S = seconds(
    "bare_loop_s",
    "Time of the backend's all-reduce in a loop without the harness, in the same rounds.",
    {
        "timer": "host monotonic performance counter",
        "synchronise": "device synchronised before start and before stop",
        "start": "right after an untimed call",
        "after": "no rank goes on before all ranks have stopped",
        "ranks": "maximum over ranks for each call, then the statistic over calls",
    },
)

METRICS: tuple[Metric, ...] = (
    LATENCY,
    BARE_LOOP_S,
    *WIRE,
    INTER_GROUP_BYTES,
    MESSAGES,
    *KERNEL,
    *ERRORS,
    *SPLIT,
)
