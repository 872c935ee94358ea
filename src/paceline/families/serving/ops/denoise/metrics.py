"""Metrics of ranks that share the denoising of images, and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import ANY, NOT_NEGATIVE, TIME_MARGIN, Metric

_SAME = {"inputs": "the same noise for all techniques of a launch, drawn after they were imported"}

METRICS: tuple[Metric, ...] = (
    Metric(
        name="denoise_time",
        unit="s",
        better="lower",
        doc="From noise on all ranks to images on rank 0, with real messages; only where every rank has a core.",
        contract=_SAME
        | {
            "timer": "rank 0's monotonic clock",
            "start": "all ranks have left a barrier",
            "stop": "rank 0 has the images",
            "threads": "one a rank",
        },
        margin=TIME_MARGIN,
    ),
    Metric(
        name="virtual_denoise_time",
        clock="virtual",
        unit="s",
        better="lower",
        doc="The same, were each rank a device of its own, from what ranks compute between their messages.",
        contract=_SAME
        | {
            "timer": "each rank's processor time, the least of three runs between any two operations, one thread",
            "messages": "counted and not sent; each leaves at the link's rate behind those before it, then is delayed",
        },
        margin=0.02,
    ),
    Metric(
        name="image_deviation",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="How far images are off those of the same noise, one step after the other; 1: as far as other images.",
        contract=_SAME
        | {"value": "root mean square difference to float64's images / that between different ones of these"},
        statistic="mean",
        compared_by="difference",
        margin=0.005,
    ),
    Metric(
        name="image_distance",
        unit="ratio",
        bounds=ANY,
        better="lower",
        doc="Energy distance between what images and held-out images are drawn from.",
        contract=_SAME
        | {
            "value": "2 E|X - Y| - E|X - X'| - E|Y - Y'| without bias; |.| is the root mean square over pixels",
            "held out": "256 images that are drawn anew",
        },
        statistic="mean",
        compared_by="difference",
        margin=0.001,
    ),
    Metric(
        name="layer_passes",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="Layers that all ranks compute, over those of one step after the other.",
        contract=_SAME | {"counted": "by the harness, which computes the layers"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="sent_per_image",
        unit="B",
        better="lower",
        doc="Bytes that all ranks together send for an image.",
        contract=_SAME | {"counted": "by the communicator"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
)
