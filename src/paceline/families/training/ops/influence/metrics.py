"""Metrics of ``influence`` with their contracts, free of torch."""

from __future__ import annotations

from typing import Literal

from paceline.base.families.family import NOT_NEGATIVE, SHARE, Metric

_HELD = {
    "truth": "the run again without one displacement, same minibatches, by the judge in float64",
    "gate": "estimates are finite, of all steps, and the same again alone on what it was told; who promises it is the "
    "derivative at small rates",
}


def _metric(
    name: str,
    unit: str,
    doc: str,
    value: str,
    *,
    better: Literal["lower", "higher"] = "lower",
    compared_by: Literal["ratio", "difference"] = "difference",
    margin: float = 0.02,
    bounds: tuple[float, float] | None = None,
) -> Metric:
    return Metric(
        name=name,
        unit=unit,
        better=better,
        doc=doc,
        contract=_HELD | {"value": value},
        statistic="mean",
        compared_by=compared_by,
        margin=margin,
        bounds=bounds,
    )


METRICS: tuple[Metric, ...] = (
    _metric(
        "influence_correlation",
        "1",
        "Correlation of estimated with true influence, over peers and steps.",
        "Pearson's, 0 where estimates do not vary",
        better="higher",
        bounds=(-1.0, 1.0),
    ),
    _metric(
        "peer_correlation",
        "1",
        "Correlation of estimated with true influence over the peers of a step, on average over steps.",
        "Pearson's, 0 where estimates do not vary",
        better="higher",
        bounds=(-1.0, 1.0),
    ),
    _metric(
        "influence_error",
        "ratio",
        "Distance of estimated from true influence over its length.",
        "Euclidean, over peers and steps",
        bounds=NOT_NEGATIVE,
    ),
    _metric(
        "flipped_found",
        "ratio",
        "Share of flipped peers among those with the most harmful estimates, on average over steps.",
        "as many peers as are flipped are named",
        better="higher",
        bounds=SHARE,
    ),
    _metric(
        "influence_queries",
        "count",
        "Gradients and Hessian products that the estimator asked for.",
        "counted by the harness",
        compared_by="ratio",
    ),
)
