"""Metrics of ``cache`` and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import ANY, Metric

_KEPT = {
    "read": "position by position by the embedded trained model, traces of held-out problems",
    "kept": "tensors that a technique returned; it is made anew for every question, and another process makes keys and "
    "values of them again",
}

METRICS: tuple[Metric, ...] = (
    Metric(
        name="perplexity_gap",
        unit="ratio",
        bounds=ANY,
        better="lower",
        doc="Perplexity of held-out text over what was kept, less that over whole texts.",
        contract=_KEPT
        | {"value": "exp(mean loss over what was kept) - exp(mean loss of one pass over whole texts)"},
        statistic="mean",
        compared_by="difference",
        margin=0.001,
    ),
    Metric(
        name="loss_gap",
        unit="nat",
        bounds=ANY,
        better="lower",
        doc="Mean loss of held-out text over what was kept, less that over whole texts.",
        contract=_KEPT
        | {"value": "mean over tokens behind the problem of -ln p, less that of one pass over whole texts"},
        statistic="mean",
        compared_by="difference",
        margin=0.001,
    ),
    Metric(
        name="cache_bytes",
        unit="B",
        better="lower",
        doc="What is kept of a position, over all layers.",
        contract=_KEPT
        | {"counted": "bytes of all tensors that outlive a question, by the harness, over positions"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="cache_compression",
        unit="ratio",
        better="higher",
        doc="Keys and values in two bytes a number, over what is kept.",
        contract=_KEPT | {"value": "2 * layers * width * 2 bytes / cache_bytes"},
        statistic="mean",
        margin=0.001,
    ),
    Metric(
        name="rebuild_flops",
        unit="count",
        better="lower",
        doc="Operations of matrix products that make keys and values of what is kept, for each position kept.",
        contract=_KEPT
        | {"counted": "by torch's counter of operations around questions of all layers, for one text"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
)
