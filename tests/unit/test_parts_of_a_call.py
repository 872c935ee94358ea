"""A point's page: parts of a call that other calls were measured for, beside the call's own time."""

from __future__ import annotations

import pytest
import record_factory as factory

from paceline.analysis.points import points_of
from paceline.report.points.tradeoffs import split_charts


def note_of(parts_s: float, call_s: float) -> str:
    """Return what stands below the parts of a technique's call."""
    run = factory.make_run()
    lines = factory.launches(run, "native", [call_s] * 4)
    lines += factory.launches(run, "native", [parts_s] * 4, metric="communicate_s")
    (point,) = points_of(factory.in_memory(run, lines))
    (chart,) = split_charts(point)
    return chart.note


def test_parts_that_exceed_the_call_are_named_with_both_times_and_the_reason() -> None:
    note = note_of(0.0259, 0.0206)
    assert note.startswith(
        "Longer than one call: native (25.9 ms of 20.6 ms). Parts are those of other calls"
    )
    assert note.endswith(".")


@pytest.mark.parametrize("parts_s", [0.01, 0.0206, 0.0215])
def test_parts_as_long_as_the_call_need_no_word(parts_s: float) -> None:
    assert note_of(parts_s, 0.0206) == ""
