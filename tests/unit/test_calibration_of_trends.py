"""The calibration of trends: its figures count what they say, and a broken rule misses what is promised."""

from __future__ import annotations

import pytest

from paceline.analysis import changes
from paceline.calibration import trends
from paceline.calibration.trends import trend_figures


@pytest.mark.full
def test_every_kind_of_noise_drift_and_young_step_has_a_figure() -> None:
    figures = {f.name: f for f in trend_figures(12)}
    assert len(figures) == len(trends.UNCHANGED) + 6
    for name in trends.UNCHANGED:
        figure = figures[f"alarms in a year: {name}"]
        assert figure.trials == 12
        assert figure.value == (figure.hits or 0) / 12
    assert figures["step of 50 % after 12 nights"].value == 1.0
    assert figures["drift of 0.5% a night"].reached


@pytest.mark.full
def test_rules_that_see_nothing_and_rules_that_see_everything_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "LOOK_LEVEL", 1e-300)
    missed = {f.name for f in trend_figures(10) if not f.reached}
    assert {"drift of 0.5% a night", "step of 50 % after 8 nights"} <= missed
    monkeypatch.setattr(changes, "LOOK_LEVEL", 0.05)
    missed = {f.name for f in trend_figures(10) if not f.reached}
    assert "alarms in a year: independent noise" in missed
