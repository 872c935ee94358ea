"""A calibration's promise is kept by the figure itself."""

from __future__ import annotations

import pytest

from paceline.calibration.trials import within
from paceline.stats.estimates import Launches, compare_ratio


@pytest.mark.parametrize(("slower_by", "kept"), [(1.01, True), (1.05, False)])
def test_an_interval_that_reaches_the_limit_does_not_keep_a_promise(slower_by: float, kept: bool) -> None:
    noise = (0.9, 0.96, 1.0, 1.04, 1.1)
    theirs = [1.0] * len(noise)
    ours = [slower_by * factor for factor in noise]
    effect = compare_ratio(*(Launches(values=dict(enumerate(values))) for values in (ours, theirs)))
    assert effect.low is not None
    assert effect.high is not None
    assert effect.low < 1.03 < effect.high
    assert within(effect, 1.03) is kept
