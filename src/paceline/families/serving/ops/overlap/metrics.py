"""Metrics of ``overlap`` and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import NOT_NEGATIVE, SHARE, Metric

_ORDERED = {
    "times": "virtual, from datasheets' rates: what a nano-batch's slowest resource takes, over what its share reaches",
    "gate": "laws of rows, needs and shares, and the cut batch computed on a small model",
}

METRICS: tuple[Metric, ...] = (
    Metric(
        name="iteration_time",
        clock="virtual",
        unit="s",
        better="lower",
        doc="From a batch's first operator to its last, in virtual time from datasheets' rates.",
        contract=_ORDERED | {"value": "the latest end of any nano-batch"},
        statistic="mean",
        margin=0.001,
    ),
    Metric(
        name="optimum_share",
        unit="ratio",
        bounds=SHARE,
        better="higher",
        doc="Time that products with weights take at the device's rate, over the batch's time.",
        contract=_ORDERED
        | {
            "value": "layers * operations of all products with weights / device's rate / iteration_time",
            "source": "NanoFlow, equation 5: the optimal throughput is the rate over two operations a weight",
        },
        statistic="mean",
        margin=0.001,
    ),
    Metric(
        name="overlapped_share",
        unit="ratio",
        bounds=SHARE,
        better="higher",
        doc="Share of the batch's time in which several nano-batches are computed.",
        contract=_ORDERED | {"value": "seconds with two nano-batches or more / iteration_time"},
        statistic="mean",
        margin=0.001,
    ),
    Metric(
        name="nano_batches",
        unit="count",
        better="lower",
        doc="Nano-batches of an operator in a layer, mean.",
        contract=_ORDERED | {"value": "nano-batches / (layers * operators)"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="split_deviation",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="What cutting changes in the numbers that leave two layers of a small model, over the largest of them.",
        contract=_ORDERED
        | {
            "value": "largest difference between the ordered nano-batches and whole batches / largest number",
            "computed": "by the harness, in float32, in the order in which nano-batches begin",
        },
        statistic="mean",
        compared_by="difference",
        margin=1e-6,
    ),
)
