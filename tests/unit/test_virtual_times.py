"""A time that a model plays is called virtual wherever a person reads it: it may be longer than the run."""

from __future__ import annotations

import pytest
import record_factory as factory

from paceline.analysis.points import Point, points_of
from paceline.report.summaries.decided import effect_sentence, largest, summarise
from paceline.report.tables.results import suite_tables


def points(family: str, operation: str, metric: str) -> list[Point]:
    run = factory.make_run(
        suites=[
            {
                "suite": "collectives/example",
                "version": 1,
                "family": family,
                "baseline": "native",
                "metrics": {metric: 0.02},
                "claims": [],
            }
        ]
    )
    options = {"metric": metric, "family": family, "params": {"op": operation}}
    lines = [
        *factory.launches(run, "native", [3.0, 3.01, 3.0, 3.02, 3.0], **options),
        *factory.launches(run, "fast", [1.5, 1.51, 1.5, 1.52, 1.5], **options),
    ]
    return points_of(factory.in_memory(run, lines))


@pytest.mark.parametrize(
    ("family", "operation", "metric", "words"),
    [
        ("serving", "decode", "decode_time", "simulated decode time"),
        ("serving", "overlap", "iteration_time", "simulated iteration time"),
    ],
)
def test_a_played_time_is_called_virtual_below_tables_and_in_summaries(
    family: str, operation: str, metric: str, words: str
) -> None:
    found = points(family, operation, metric)
    summary = summarise(found)
    (table,) = suite_tables(found, [*summary.decided, *summary.undecided])
    assert f"virtual time, which no clock has measured: {metric}" in table.render()
    (effect,) = largest(summary)
    assert f"the {words} of native" in effect_sentence(summary, effect)


def test_a_measured_time_is_not() -> None:
    found = points("collectives", "all_reduce", "latency")
    summary = summarise(found)
    (table,) = suite_tables(found, summary.decided)
    assert "virtual" not in table.render()
    assert "the latency of native" in effect_sentence(summary, largest(summary)[0])
