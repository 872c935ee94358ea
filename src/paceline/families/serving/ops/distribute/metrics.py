"""Metrics of ranks that share a model and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import NOT_NEGATIVE, Metric
from paceline.families.serving.core.planning.metrics import PLAYED

_PROVED = {
    "proved": "every step of a script, with all messages, in modes drawn at random; the same script for all techniques",
}

METRICS: tuple[Metric, ...] = (
    *PLAYED,
    Metric(
        name="kv_switched",
        unit="B",
        better="lower",
        doc="Keys and values that ranks moved because the mode of a step changed.",
        contract=_PROVED
        | {"counted": "by the ranks' caches: bytes written for tokens that an earlier step computed"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="kv_copies",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="Keys and values that all ranks hold, over one copy.",
        contract=_PROVED
        | {"value": "heads of tokens and layers that are written on any rank / those that there are"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="held_weights",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="Bytes of weights that all ranks took, over those of one model's layers.",
        contract=_PROVED | {"counted": "by the harness, which hands weights out; every copy counts"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="layer_deviation",
        unit="ratio",
        bounds=NOT_NEGATIVE,
        better="lower",
        doc="How far off what leaves the last layer is, over its largest number.",
        contract=_PROVED
        | {
            "value": "largest difference to a plain computation in float64 / largest number, over all wanted tokens"
        },
        statistic="mean",
        compared_by="difference",
        margin=1e-6,
    ),
    Metric(
        name="mode_switches",
        unit="count",
        better="lower",
        doc="How often a step of the load was computed in another mode than the one before.",
        contract={"counted": "over the played load's steps, in the order in which they begin"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="sent_per_token",
        unit="B",
        better="lower",
        doc="Bytes that all ranks together send for a computed token.",
        contract={
            "counted": "by the communicator over the script's steps in each mode, per computed token",
            "value": "mean over the played load's tokens, each in the mode of its step",
        },
        statistic="mean",
        margin=0.001,
    ),
)
