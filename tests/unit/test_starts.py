"""Whether a metric depends on how ranks start is read from an interval and a margin."""

from __future__ import annotations

import pytest

from paceline.calibration.starts import within
from paceline.stats.estimates import Estimate


@pytest.mark.parametrize(
    ("low", "high", "margin", "reached"),
    [
        (0.98, 1.02, 0.05, True),
        (0.9, 1.2, 0.05, False),
        (0.026, 3.631, 0.05, False),
        (1.06, 1.3, 0.05, False),
        (0.5, 0.94, 0.05, False),
        (1.0, 1.0, 0.0, True),
        (1.001, 1.001, 0.0, False),
        (None, None, 0.05, False),
    ],
)
def test_only_an_interval_inside_the_margin_shows_that_the_start_does_not_matter(
    low: float | None, high: float | None, margin: float, reached: bool
) -> None:
    effect = Estimate(value=1.0, low=low, high=high, method="t", num_launches=5)
    assert within(effect, margin) is reached
