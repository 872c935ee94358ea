"""Metrics of ``objective`` with their contracts, free of torch."""

from __future__ import annotations

from typing import Literal

from paceline.base.families.family import ANY, NOT_NEGATIVE, SHARE, Metric

_PLAYED = {
    "times": "virtual: drawn durations of gradients, a stated rate and latency of links; the judge owns the clock",
    "gradients": "the harness's, of a problem drawn from a seed; a node sees its own and its messages",
    "gate": "laws of the log by other code; every node run again alone on the answers that it got; reductions",
    "distance": "convex: F(x) - F(x*) over F(0) - F(x*); game: |z - z*|^2 over |z*|^2; not convex: |grad F(x)|^2; "
    "classifier: accuracy of the optimum less that of the model, on held-out samples; x* by the judge in float64",
}


def _metric(
    name: str,
    unit: str,
    doc: str,
    value: str,
    *,
    better: Literal["lower", "higher", "neither"] = "lower",
    compared_by: Literal["ratio", "difference"] = "ratio",
    margin: float = 0.02,
    bounds: tuple[float, float] | None = None,
) -> Metric:
    return Metric(
        name=name,
        unit=unit,
        better=better,
        doc=doc,
        contract=_PLAYED | {"value": value},
        statistic="mean",
        compared_by=compared_by,
        margin=margin,
        bounds=bounds,
        clock="virtual" if unit == "s" else None,
    )


_FIRST = "at the first report whose distance is at most the point's target"
METRICS: tuple[Metric, ...] = (
    _metric("virtual_time_to_target", "s", "Virtual time until the target distance is reached.", _FIRST),
    _metric("bits_to_target", "bit", "Bits that all nodes have sent until then, both ways.", _FIRST),
    _metric("client_bits_to_target", "bit", "Bits that nodes with data have sent until then.", _FIRST),
    _metric("queries_to_target", "count", "Values that all nodes have asked for until then.", _FIRST),
    _metric("gradients_to_target", "count", "Gradients that all nodes have computed until then.", _FIRST),
    _metric("messages_to_target", "count", "Messages that all nodes have sent until then.", _FIRST),
    _metric("reports_to_target", "count", "Models reported until then: rounds of a server.", _FIRST),
    _metric(
        "final_distance",
        "ratio",
        "Distance from the best at the run's end.",
        "median over the last tenth of reports",
        compared_by="difference",
        margin=0.005,
        bounds=ANY,
    ),
    _metric(
        "distance_deviation",
        "ratio",
        "Standard deviation of the distance in the last three tenths of a run.",
        "over reports",
        compared_by="ratio",
        margin=0.05,
    ),
    _metric(
        "idle_node_share",
        "ratio",
        "Share of nodes' time in which they compute nothing.",
        "1 - computing seconds / (nodes with data * seconds)",
        compared_by="difference",
        margin=0.01,
        bounds=SHARE,
    ),
    _metric(
        "lasted_share",
        "ratio",
        "When the last model was reported, over the horizon.",
        "instant of the last report / horizon",
        better="higher",
        compared_by="difference",
        margin=0.02,
        bounds=SHARE,
    ),
    _metric("sent_bits", "bit", "Bits that all nodes send in the whole run.", "sum over messages"),
    _metric(
        "held_out_accuracy",
        "ratio",
        "Accuracy of a classifier on samples that nobody trains on.",
        "median over the last tenth of reports",
        better="higher",
        compared_by="difference",
        margin=0.005,
        bounds=SHARE,
    ),
    _metric(
        "squared_gradient_norm",
        "1",
        "Squared norm of the whole gradient at the run's end, where the objective is not convex.",
        "median over the last tenth of reports",
        margin=0.05,
    ),
    _metric(
        "privacy_spent",
        "1",
        "The epsilon that releases leave the least private node with, at the point's delta.",
        "Renyi divergences of all releases, composed by the judge",
        compared_by="difference",
        margin=0.01,
        bounds=NOT_NEGATIVE,
    ),
    _metric(
        "private_releases",
        "count",
        "Noisy means that all nodes release, where privacy is asked for.",
        "counted by the harness",
        better="neither",
        compared_by="difference",
    ),
)
