"""Points whose calls pass in a shaped link's burst are said to have times without its rate."""

from __future__ import annotations

from typing import Any

import pytest
from record_factory import in_memory, make_run, measurement

from paceline.analysis.points import Point, points_of
from paceline.report.tables.results import board_table
from paceline.report.tables.shaped_links import burst_note


def points(sent: dict[int, float], calibrated: Any) -> list[Point]:
    """Return points at which the busiest rank sends so many bytes, by the size of the call."""
    run = make_run()
    lines = []
    for size, sent_bytes in sent.items():
        at = {"size_bytes": size}
        lines += [
            measurement(run, "native", 0, [1e-3], params=at, ceilings={"calibrated": calibrated}),
            measurement(run, "ring", 0, [1e-3], params=at, ceilings={"calibrated": calibrated}),
            measurement(run, "ring", 0, [sent_bytes], metric="wire_bytes", params=at),
        ]
    return points_of(in_memory(run, lines))


SENT = {1 << 18: 393_216.0, 1 << 21: 3_145_728.0}


def test_points_that_pass_in_the_burst_are_counted() -> None:
    found = burst_note(points(SENT, {"burst_bytes": 1_000_000}))
    assert found == [
        "at 1 of 2 points no rank sends more in a call than the link's burst (977 KiB), which passes at memory "
        "speed: the link's delay is in these times, and its rate is hardly"
    ]
    assert found[0] in board_table(points(SENT, {"burst_bytes": 1_000_000}), []).notes


def test_exactly_a_burst_passes_and_one_byte_more_does_not() -> None:
    assert burst_note(points({1 << 18: 1000.0}, {"burst_bytes": 1000}))
    assert not burst_note(points({1 << 18: 1001.0}, {"burst_bytes": 1000}))


@pytest.mark.parametrize(
    "calibrated",
    [None, {"burst_bytes": 0}, {"round_trip_s": 1e-4}, ["a"], {"burst_bytes": "1000"}, {"burst_bytes": [1]}],
)
def test_a_link_that_is_not_shaped_has_no_burst(calibrated: Any) -> None:
    assert burst_note(points(SENT, calibrated)) == []
