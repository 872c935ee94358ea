"""What metrics of traces have in common: how tokens are counted, and how shares are compared. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from paceline.base.families.family import SHARE, Bounds, Metric

ANOTHER_MODELS = "another model's tokens are in it, which are not votes' tokens"
"""Why a technique stands beside no plain vote of as many tokens."""
TOKENS = {
    "counted": "tokens that models decoded, by the executor that asks for them; forced tokens are not decoded",
    "value": "mean over the questions of a launch",
}


def token_metric(name: str, doc: str, extra: Mapping[str, str] | None = None) -> Metric:
    """Return a metric of tokens, the mean over the questions of a launch.

    Args:
        name: Of the metric.
        doc: One sentence for the reference.
        extra: What its contract says beyond how tokens are counted.
    """
    return Metric(
        name=name,
        unit="token",
        better="lower",
        doc=doc,
        contract=TOKENS | dict(extra or {}),
        statistic="mean",
        margin=0.02,
    )


def share_metric(
    name: str,
    doc: str,
    better: Literal["lower", "higher"],
    contract: Mapping[str, str],
    *,
    proportion: bool = False,
    bounds: Bounds = SHARE,
) -> Metric:
    """Return a metric that is a share, or a difference of shares, and is compared by difference.

    Args:
        name: Of the metric.
        doc: One sentence for the reference.
        better: Which direction is.
        contract: How it is measured.
        proportion: Whether samples are 0 or 1, and the value is their mean.
        bounds: Least and largest value.
    """
    return Metric(
        name=name,
        unit="ratio",
        better=better,
        doc=doc,
        contract=contract,
        statistic="mean",
        compared_by="difference",
        margin=0.01,
        proportion=proportion,
        bounds=bounds,
    )
