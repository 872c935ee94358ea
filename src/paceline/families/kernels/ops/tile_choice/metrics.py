"""What is measured of predictions: how much they explain, and what choosing a tile by them costs; free of torch."""

from __future__ import annotations

import math
from typing import Literal

from paceline.base.families.family import NOT_NEGATIVE, Bounds, Metric


def _ratio(name: str, better: Literal["lower", "higher"], doc: str, bounds: Bounds = NOT_NEGATIVE) -> Metric:
    return Metric(
        name=name,
        unit="ratio",
        better=better,
        doc=doc,
        contract={
            "times": "medians of five shuffled calls of a tiled product on this process's performance counter",
            "held out": "every fourth shape; the technique never sees its times",
        },
        compared_by="difference",
        bounds=bounds,
    )


METRICS: tuple[Metric, ...] = (
    _ratio("r_squared", "higher", "R² of the predicted logarithms of held-out times.", (-math.inf, 1.0)),
    _ratio(
        "regret",
        "lower",
        "Time with the predicted tile / time with the best one, timed again in turn; median held-out shape.",
    ),
    _ratio("worst_regret", "lower", "The same for the held-out shape where it is largest."),
    _ratio(
        "gain_over_worst", "higher", "Time with the worst tile / time with the predicted one, median shape."
    ),
)
