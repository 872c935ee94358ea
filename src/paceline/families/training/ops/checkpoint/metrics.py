"""Metrics of checkpoints and of fine-tuning by codes alone, with their contracts; free of torch."""

from __future__ import annotations

from paceline.base.family import Metric
from paceline.families.training.core.contracts import BYTES, LOSS

_CHECKPOINT = {
    "timer": "the host's performance counter around the technique's calls in the family's loop",
    "schedule": "in every second window a checkpoint after every step; the other windows have none",
    "oracle": "what is restored has the bits of the copy that the harness made at that step",
}
_LOG = {
    "log": "the codes that ranks sent in every step, copied from their messages by the communicator",
    "ranks": "the largest",
}

OPERATION_METRICS: tuple[Metric, ...] = (
    Metric(
        name="blocking_s",
        unit="s",
        better="lower",
        doc="Seconds for which one checkpoint holds training up.",
        contract=_CHECKPOINT
        | {
            "sample": "seconds in save and before_update, over the checkpoints of a window, on the slowest rank"
        }
        | {"last": "no computation hides what before_update waits for after a window's last checkpoint"},
        statistic="mean",
        margin=0.05,
    ),
    Metric(
        name="checkpoint_overhead",
        unit="1",
        better="lower",
        doc="By what share of a step training takes longer with a checkpoint after every step.",
        contract=_CHECKPOINT
        | {
            "value": "median seconds of a step in windows with checkpoints over those in windows without, less one"
        }
        | {"included": "waiting for the disk at a window's end"},
        statistic="mean",
        compared_by="difference",
        margin=0.02,
    ),
    Metric(
        name="checkpoint_bytes",
        unit="B",
        better="lower",
        doc="Bytes of one checkpoint on disk, of all ranks.",
        contract={"counted": "sizes of its files, manifests included, by the harness"},
        statistic="mean",
    ),
    Metric(
        name="restore_s",
        unit="s",
        better="lower",
        doc="Seconds to find the newest sound checkpoint, digests included, and take it up on a new replica.",
        contract=_CHECKPOINT | {"cache": "files are in the host's page cache", "ranks": "the slowest"},
        statistic="mean",
    ),
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
