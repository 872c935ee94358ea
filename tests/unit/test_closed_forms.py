"""A closed form is held to one per cent of itself, however small it is; none is exactly none."""

from __future__ import annotations

import pytest

from paceline.base.families.family import off_formula


@pytest.mark.parametrize("expected", [0.1, 1.0, 37.0, 1e9])
def test_one_per_cent_is_one_per_cent_of_the_formula(expected: float) -> None:
    assert off_formula({"messages": expected * 1.009}, {"messages": expected}) is None
    assert off_formula({"messages": expected * 0.991}, {"messages": expected}) is None
    for wrong in (1.02, 0.98, 0.0):
        assert off_formula({"messages": expected * wrong}, {"messages": expected}) is not None


def test_what_is_stated_as_nothing_is_nothing() -> None:
    assert off_formula({"wire_bytes": 0.0}, {"wire_bytes": 0.0}) is None
    assert off_formula({"wire_bytes": 0.009}, {"wire_bytes": 0.0}) is not None


def test_both_figures_can_be_told_apart_in_the_text() -> None:
    assert off_formula({"messages": 0.11}, {"messages": 0.1}) == "messages is 0.1100, formula 0.1000"
    assert (
        off_formula({"wire_bytes": 1030.0}, {"wire_bytes": 1000.0}) == "wire_bytes is 1030.0, formula 1000.0"
    )


def test_what_nobody_measured_is_not_held_to_anything() -> None:
    assert off_formula({}, {"wire_bytes": 12.0}) is None
