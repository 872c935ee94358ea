"""Metrics of finding the guilty rank, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.collectives.core.planning.metrics import SCENARIO, seconds

METRICS: tuple[Metric, ...] = (
    Metric(
        name="overhead",
        clock="machine",
        unit="ratio",
        better="lower",
        doc="Median step time with tracing and watching, over the same without, in alternating segments.",
        contract={**SCENARIO, "ranks": "the slowest rank's median of each segment"},
    ),
    seconds("detection_s", "From the fault to the first alarm.", SCENARIO),
    Metric(
        name="detected",
        unit="ratio",
        better="higher",
        doc="1 when an alarm is raised within 15 s of the fault (without a fault: 1 when none is raised).",
        contract=SCENARIO,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    ),
    Metric(
        name="named",
        unit="ratio",
        better="higher",
        doc="1 when the guilty rank, or an end of the slow link, is named within 20 s of the fault.",
        contract=SCENARIO,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    ),
)
