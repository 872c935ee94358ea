"""Metrics of checkpoints; free of torch."""

from __future__ import annotations

from paceline.base.families.family import ANY, TIME_MARGIN, Metric
from paceline.families.training.core.planning.byte_metrics import BYTE_METRICS
from paceline.families.training.core.planning.metrics import RUN_METRICS, TARGETS, TIMES
from paceline.families.training.core.planning.rank_metrics import RANK_METRICS

_CHECKPOINT = {
    "timer": "the host's performance counter around the technique's calls in the family's loop",
    "schedule": "in every second window a checkpoint after every step; the other windows have none",
    "oracle": "what is restored has the bits of the copy that the harness made at that step",
}

SAVED: tuple[Metric, ...] = (
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
        margin=TIME_MARGIN,
    ),
    Metric(
        name="checkpoint_overhead",
        clock="machine",
        unit="1",
        bounds=ANY,
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
        margin=TIME_MARGIN,
    ),
)

METRICS: tuple[Metric, ...] = (*RUN_METRICS, *BYTE_METRICS, *TIMES, *RANK_METRICS, *SAVED, *TARGETS)
