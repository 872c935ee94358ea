"""Metrics of row-parallel layers with RMSNorm, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.collectives.core.planning.metrics import CALL, EXPOSED_S

NORM_ROWS = Metric(
    name="norm_rows",
    unit="rows",
    better="lower",
    doc="Rows that the busiest rank normalises in one call.",
    contract={"counter": "rows passed to the problem's RMSNorm", "ranks": "the busiest rank"},
)

METRICS: tuple[Metric, ...] = (*CALL, EXPOSED_S, NORM_ROWS)
