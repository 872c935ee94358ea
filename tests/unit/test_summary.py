"""``paceline summary``: what runs have decided, the largest effects, what is open, and what to try next."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.analysis.compare import compare_points
from paceline.analysis.points import Point, headline, points_of
from paceline.base.errors import UserError
from paceline.calibration.deciding import until_decided
from paceline.calibration.trials import calibration_suite, run_suite, shorten
from paceline.cli import application
from paceline.records.store.lookup import find_run
from paceline.report.summaries.decided import (
    board_points,
    largest,
    newest_points,
    on_one_processor,
    summarise,
    summary_lines,
)
from paceline.spec.content import checkout_root

ROOT = checkout_root()
assert ROOT is not None
PUBLISHED = ROOT / "results" / "published"
RUN, SUITE = "01a1fe7e-23fd", "collectives/matrix-product"


def said(*arguments: object) -> str:
    result = CliRunner().invoke(application, ["summary", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_every_headline_comparison_of_a_run_is_counted_once() -> None:
    points = points_of(find_run([PUBLISHED], RUN))
    found = summarise(points)
    expected = [c for c in compare_points(points) if c.metric in headline(c.point.run, c.point.suite)]
    assert found.num == len(expected) > 0
    assert {id(c.point) for c in found.undecided} <= {id(p) for p in points}
    assert all(c.verdict.name == "inconclusive" for c in found.undecided)
    assert all(c.verdict.name != "inconclusive" for c in found.decided)
    text = "\n".join(summary_lines(found))
    assert f"{len(found.decided)} of {found.num} headline comparisons are decided" in text
    for comparison in largest(found):
        assert f"{comparison.label} has " in text
    assert "paceline site open" in text


def test_the_largest_effects_are_decided_ratios_one_of_each_technique() -> None:
    found = summarise(board_points([find_run([PUBLISHED], RUN)]))
    effects = largest(found)
    assert len({(c.point.suite, c.label) for c in effects}) == len(effects) <= 5
    distances = [max(c.effect.value, 1 / c.effect.value) for c in effects]
    assert distances == sorted(distances, reverse=True)
    assert all(c.verdict.name in ("faster", "slower") for c in effects)


def test_what_is_open_says_why_and_what_would_decide_it() -> None:
    text = "\n".join(summary_lines(summarise(points_of(find_run([PUBLISHED], RUN)))))
    assert "Not told apart:" in text
    assert "the interval includes no change" in text
    assert f"paceline run {SUITE} --budget 5min" in text


def test_the_newest_run_of_a_named_suite_counts(tmp_path: Path) -> None:
    suite = shorten(calibration_suite("same-work"), 2)
    run_suite(suite, "fake", tmp_path, launches=2, seed=7, quiet=True)
    second = run_suite(until_decided(suite, 0.02), "fake", tmp_path, seed=7, quiet=True)
    points = newest_points([tmp_path], [suite.name, "collectives/all-reduce"])
    assert {p.run.run_id for p in points} == {second.run_id}
    found = json.loads(said("calibration/same-work", "--results", tmp_path, "--json"))
    assert found["num_comparisons"] == 2 and found["num_decided"] == 2
    assert found["families"] == {"calibration": {"num_comparisons": 2, "num_decided": 2}}
    text = said("calibration/same-work", "--results", tmp_path)
    assert text.startswith("2 of 2 headline comparisons are decided: 0 faster or better")
    assert "Not told apart" not in text


def on_host(points: list[Point], host: str, run_id: str, device: dict[str, object]) -> list[Point]:
    changed = {"host_class": host, "run_id": run_id, "device": device}
    return [replace(p, run=p.run.model_copy(update=changed)) for p in points]


def test_of_two_kinds_of_processors_the_newest_measurement_counts_and_of_accelerators_both() -> None:
    points = points_of(find_run([PUBLISHED], RUN))
    older = on_host(points, "AMD, 2 cores", "01a1fe00-0000", {"kind": "cpu"})
    newer = on_host(points[:1], "Intel, 2 cores", "01a1fe01-0000", {"kind": "cpu"})
    assert on_one_processor([*older, *newer]) == [*older[1:], *newer]
    cards = (
        on_host(points, "H100", "01a1fe02-0000", {"kind": "cuda"}),
        on_host(points, "H200", "01a1fe03-0000", {"kind": "cuda"}),
    )
    assert on_one_processor([*newer, *cards[0], *cards[1]]) == [*newer, *cards[0], *cards[1]]


def test_points_of_an_earlier_version_of_a_suite_count_no_longer_once_a_later_one_was_measured() -> None:
    points = on_host(
        points_of(find_run([PUBLISHED], RUN)), "Intel, 2 cores", "01a1fe00-0000", {"kind": "cpu"}
    )
    newer = [replace(p, suite_version=p.suite_version + 1) for p in points[:1]]
    assert on_one_processor([*points, *newer]) == newer
    others = [replace(p, suite="collectives/of-others") for p in points]
    assert on_one_processor([*others, *newer]) == [*others, *newer]
    cards = on_host(points, "H100", "01a1fe02-0000", {"kind": "cuda"})
    assert on_one_processor([*cards, *newer]) == [*cards, *newer]


def test_a_suite_that_nobody_measured_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run measured collectives/all-reduce") as raised:
        said("collectives/all-reduce", "--results", tmp_path)
    assert "paceline run collectives/all-reduce" in str(raised.value)


def test_an_empty_store_says_how_to_begin(tmp_path: Path) -> None:
    assert said("--results", tmp_path).startswith("No run here compares anything yet: paceline run ")
