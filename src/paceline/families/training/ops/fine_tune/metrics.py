"""Metrics of fine-tuning, most of them by codes alone; free of torch."""

from __future__ import annotations

from paceline.base.families.family import NOT_NEGATIVE, TIME_MARGIN, Metric
from paceline.families.training.core.planning.byte_metrics import BYTE_METRICS
from paceline.families.training.core.planning.contracts import BYTES, LOSS
from paceline.families.training.core.planning.metrics import RUN_METRICS, TARGETS, TIMES
from paceline.families.training.core.planning.rank_metrics import RANK_METRICS

_LOG = {
    "log": "the codes that ranks sent in every step, copied from their messages by the communicator",
    "ranks": "the largest",
}

TUNED: tuple[Metric, ...] = (
    Metric(
        name="loss_fall",
        unit="nat",
        better="higher",
        doc="By how much fine-tuning has lowered eval_loss: that of its start less that after the last step.",
        contract=LOSS,
        statistic="last",
        margin=0.02,
    ),
    Metric(
        name="payload_bytes",
        unit="B",
        better="lower",
        doc="Payload bytes that one rank sends to one other for one slope of the loss (fine_tune).",
        contract=BYTES | {"sample": "bytes of the run to the rank that gets most, over steps and probes"},
        statistic="mean",
    ),
    Metric(
        name="replay_difference",
        unit="1",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="Largest difference between an element of the trained weights and of those that a new replica makes of the "
        "initial ones and the log; anything but 0 is incorrect.",
        contract=_LOG
        | {"oracle": "the harness replays the log, too, and compares every copy of the weights"},
        statistic="max",
        compared_by="difference",
    ),
    Metric(
        name="replay_s",
        unit="s",
        better="lower",
        doc="What joining at the end costs: seconds in which a new replica replays the log of the whole run.",
        contract=_LOG | {"timer": "host clock around the replay, all ranks at once"},
        statistic="max",
        margin=TIME_MARGIN,
    ),
    Metric(
        name="log_bytes",
        unit="B",
        better="lower",
        doc="Bytes of the log of the whole run, which is all that a rank that joins late is sent.",
        contract=_LOG,
        statistic="max",
    ),
)

METRICS: tuple[Metric, ...] = (*RUN_METRICS, *BYTE_METRICS, *TIMES, *RANK_METRICS, *TUNED, *TARGETS)
