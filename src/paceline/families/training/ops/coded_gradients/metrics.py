"""Metrics of ``coded_gradients`` with their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import NOT_NEGATIVE, SHARE, Metric

_PLAYED = {
    "times": "virtual: drawn states of workers, and times as long as their loads; the judge owns the clock",
    "gradients": "the harness's, of least squares on drawn samples, at weights of its own",
    "gate": "every sum is the whole gradient, by other code; the log's laws; the master run again on what it was told",
}

METRICS: tuple[Metric, ...] = (
    Metric(
        name="virtual_run_time",
        clock="virtual",
        unit="s",
        better="lower",
        doc="Virtual time in which all jobs are delivered.",
        contract=_PLAYED | {"value": "instant of the last delivery"},
        statistic="mean",
        margin=0.02,
    ),
    Metric(
        name="worker_load",
        unit="ratio",
        better="lower",
        doc="Share of all data that a worker goes through in a round, at most.",
        contract=_PLAYED | {"value": "largest sum of its tasks' chunks, over workers and rounds"},
        statistic="mean",
        margin=0.0,
    ),
    Metric(
        name="full_wait_share",
        unit="ratio",
        better="lower",
        doc="Share of rounds that end only when all workers are in.",
        contract=_PLAYED | {"value": "rounds in which nothing is lost / rounds"},
        statistic="mean",
        compared_by="difference",
        margin=0.02,
        bounds=SHARE,
    ),
    Metric(
        name="recovery_error",
        unit="ratio",
        better="lower",
        doc="How far a delivered sum is from the whole gradient, at most.",
        contract=_PLAYED | {"value": "largest distance over the gradient's norm, of all jobs"},
        statistic="mean",
        compared_by="difference",
        margin=1e-6,
        bounds=NOT_NEGATIVE,
    ),
)
