"""Metrics of a group that loses a peer and gains another, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.collectives.core.planning.metrics import SCENARIO, payload_bytes, seconds

METRICS: tuple[Metric, ...] = (
    seconds(
        "fault_free_s",
        "Median time of one all-reduce before the fault.",
        {**SCENARIO, "ranks": "maximum over peers"},
    ),
    seconds(
        "recovery_s",
        "From the kill until the last survivor has the correct result of the retried operation.",
        {**SCENARIO, "ranks": "maximum over survivors"},
    ),
    Metric(
        name="recovery_steps",
        clock="machine",
        unit="ratio",
        better="lower",
        doc="recovery_s over fault_free_s.",
        contract=SCENARIO,
    ),
    Metric(
        name="survived",
        unit="ratio",
        better="higher",
        doc="1 when all survivors finish every operation with the correct result without a new process.",
        contract=SCENARIO,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    ),
    Metric(
        name="state_parity",
        unit="ratio",
        better="higher",
        doc="1 when all peers, the late joiner included, end with the same SHA-256 of their state.",
        contract=SCENARIO,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    ),
    Metric(
        name="joined",
        unit="ratio",
        better="higher",
        doc="1 when the late joiner takes part in a later operation with the correct result.",
        contract=SCENARIO,
        statistic="mean",
        compared_by="difference",
        proportion=True,
    ),
    payload_bytes("resent_bytes", "Payload bytes sent for operations that were aborted.", SCENARIO),
)
