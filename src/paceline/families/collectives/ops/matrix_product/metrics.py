"""Metrics of a matrix product on a grid of ranks, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.collectives.core.planning.metrics import CALL

HELD_BYTES = Metric(
    name="held_bytes",
    unit="B",
    better="lower",
    doc="Buffers of a call and what it needs beside them, on the rank that needs most.",
    contract={
        "read": "least growth of the peak resident set (VmHWM) in three calls, on a heap without free blocks of 64 KiB "
        "and more, plus the buffers",
        "across ranks": "maximum",
    },
    statistic="max",
)

METRICS: tuple[Metric, ...] = (*CALL, HELD_BYTES)
