"""Pages about the measuring itself: how often there is a number, what could be seen, and on which machine."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.stats import t as student
from test_site import Page, failed, measurement, record, render, run_line

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.records.format.record import Measurement
from paceline.records.store.folder import RunRecord
from paceline.report.boards import noise
from paceline.report.boards.standing import select
from paceline.report.html import Grid
from paceline.report.runs import hardware, reliability
from paceline.stats.estimates import Estimate, wilson
from paceline.stats.verdicts import minimum_detectable


def texts(grid: Grid) -> list[list[str]]:
    return [[cell.text for cell in row] for rows in grid.groups for row in rows]


def of(given: RunRecord, lines: list[Measurement]) -> RunRecord:
    return RunRecord(path=given.path, run=given.run, measurements=tuple(lines), events=(), sealed=True)


def test_launches_are_counted_once_whatever_the_number_of_metrics() -> None:
    found = reliability.endings([record(1)])
    (row,) = texts(reliability.suite_grid(found))
    low, high = wilson(30, 31)
    assert row[3:6] == ["31", "30", f"{30 / 31:.1%} [{low:.1%}, {high:.1%}]"]
    assert row[6:] == ["1 crashed", "–"]


@pytest.mark.parametrize("status", ["unsupported", "skipped"])
def test_what_was_not_tried_is_no_failure(status: str) -> None:
    given = record(1)
    lines = [*given.measurements, failed(given.run, "ring", 8, 0, "it cannot", status=status)]
    (row,) = texts(reliability.suite_grid(reliability.endings([of(given, lines)])))
    assert row[3:5] == ["31", "30"]
    assert row[7] == f"1 {status}"


def test_only_techniques_that_failed_are_listed_and_the_worst_comes_first() -> None:
    given = record(1)
    lines = [
        m
        for m in given.measurements
        if not (m.label == "ring" and m.launch == 2 and m.params["size_bytes"] == 4096)
    ]
    lines.append(failed(given.run, "ring", 4096, 2, "rank 1 died"))
    found = reliability.technique_grid(reliability.endings([of(given, lines)]))
    assert [row[1] for row in texts(found)] == ["broken", "ring"]


def test_reasons_are_ordered_by_how_often_they_occur_and_lead_to_the_newest_run() -> None:
    first, second = run_line(1), run_line(2)
    lines = [failed(first, "ring", 8, n, "often") for n in range(3)] + [failed(first, "tree", 8, 0, "once")]
    records = [
        of(record(1, sizes=(8,)), lines),
        of(record(2, sizes=(8,)), [failed(second, "ring", 8, 0, "often")]),
    ]
    grid = reliability.reason_grid(reliability.endings(records))
    assert [(row[0], row[3]) for row in texts(grid)] == [("often", "4"), ("once", "1")]
    assert grid.groups[0][0][-1].href == f"runs/{second.run_id}.html"


def test_calibrations_do_not_count() -> None:
    given = [record(1, reason="calibrate")]
    assert texts(reliability.suite_grid(reliability.endings(given))) == []
    assert hardware.machines(given) == []


def test_the_least_effect_is_what_four_of_five_runs_find() -> None:
    count, spread = 6, 0.03
    estimate = Estimate(value=1.0, low=0.98, high=1.02, method="t", num_launches=count, spread=spread)
    expected = (student.ppf(0.975, count - 1) + student.ppf(0.8, count - 1)) * spread / math.sqrt(count)
    assert minimum_detectable(estimate, "difference") == pytest.approx(expected)
    assert minimum_detectable(estimate, "ratio") == pytest.approx(math.exp(expected) - 1)


@pytest.mark.parametrize(
    "facts", [{"num_launches": 1, "spread": 0.1}, {"num_launches": 5}, {"num_launches": 5, "spread": 0.0}]
)
def test_without_a_spread_there_is_no_least_effect(facts: dict[str, Any]) -> None:
    estimate = Estimate(**{"value": 1.0, "low": 0.9, "high": 1.1, "method": "t", **facts})
    assert minimum_detectable(estimate, "ratio") is None


def noisy(scatter: float) -> RunRecord:
    """A run whose technique scatters by a share over launches that the baseline does not have."""
    given = record(1)
    lines = []
    for m in given.measurements:
        factor = 1 + scatter * (-1) ** m.launch if m.label == "ring" and m.metric.name == "latency" else 1.0
        samples = [s * factor for s in m.samples]
        value = None if m.value is None else m.value * factor
        lines.append(m.model_copy(update={"samples": samples, "value": value}))
    return of(given, lines)


def test_series_and_summary_show_the_spread_and_what_it_hides() -> None:
    given = noisy(0.05)
    (board,) = select([given]).boards
    comparisons = compare_points(board.points)
    rows = [row for row in texts(noise.series_grid(board, comparisons, "")) if row[1] == "ring"]
    assert len(rows) == 2
    logs = [math.log(1 + 0.05 * (-1) ** launch) for launch in range(5)]
    mean = sum(logs) / 5
    spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / 4)
    assert float(rows[0][3].rstrip("%")) == pytest.approx(100 * spread, rel=0.02)
    least = (student.ppf(0.975, 4) + student.ppf(0.8, 4)) * spread / math.sqrt(5)
    assert float(rows[0][4].rstrip("%")) == pytest.approx(100 * (math.exp(least) - 1), rel=0.02)
    (summary,) = texts(noise.summary_grid([(board, comparisons)]))
    assert summary[4] == "4"


def test_every_board_has_its_noise_and_the_summary_leads_to_it() -> None:
    files = render(record(1))
    board = next(name for name in files if name.startswith("boards/"))
    assert f"{board}#noise" in Page(files["calibration.html"]).links
    assert "noise" in Page(files[board]).ids


def test_a_board_where_nothing_scatters_has_no_least_effect() -> None:
    given = record(1)
    lines = [m for m in given.measurements if m.metric.name == "wire_bytes"]
    (board,) = select([of(given, lines)]).boards
    points = points_of(of(given, lines))
    assert points
    (summary,) = texts(noise.summary_grid([(board, compare_points(board.points))]))
    assert summary[5:7] == ["–", "–"]


def ceilings(rate: float, **more: Any) -> dict[str, Any]:
    return {
        "calibrated": {"link_bytes_per_s": rate, "round_trip_s": 1e-4, "burst_bytes": 0, **more},
        "datasheet": None,
    }


def test_ceilings_are_the_medians_of_launches_and_stand_beside_the_datasheet() -> None:
    run = run_line(1)
    lines = [
        measurement(run, label, 4096, launch, ceilings=ceilings(1e9 * (launch + 1)))
        for launch in range(3)
        for label in ("native", "ring")
    ]
    lines[0] = lines[0].model_copy(
        update={
            "ceilings": {**ceilings(1e9), "datasheet": {"link_bytes_per_s": 4e9, "copied_from": "somewhere"}}
        }
    )
    given = record(1, sizes=(8,))
    # every technique of a launch holds the same ceilings: they count once
    lines[1] = lines[1].model_copy(update={"ceilings": lines[0].ceilings})
    (machine,) = hardware.machines([of(given, lines)])
    rows = {row[3]: row for row in texts(hardware.ceiling_grid(machine))}
    assert set(rows) == {"link_bytes_per_s", "round_trip_s"}
    assert rows["link_bytes_per_s"][4:] == ["2 GB/s", "1 GB/s to 3 GB/s", "3", "4 GB/s", "50.0%"]
    assert rows["round_trip_s"][4] == "100 µs"
    assert rows["round_trip_s"][7:] == ["–", "–"]


@pytest.mark.parametrize("bad", [float("nan"), "<script>", None, True, [1.0]])
def test_ceilings_that_are_no_numbers_are_left_out(bad: object) -> None:
    run = run_line(1)
    line = measurement(run, "native", 8, 0).model_copy(update={"ceilings": ceilings(1e9, odd_s=bad)})
    (machine,) = hardware.machines([of(record(1, sizes=(8,)), [line])])
    assert [row[3] for row in texts(hardware.ceiling_grid(machine))] == [
        "link_bytes_per_s",
        "round_trip_s",
    ]


def test_machines_of_another_class_stand_apart() -> None:
    text = render(record(1), record(2, host_class="Another CPU"))["hardware.html"]
    assert text.index("Another CPU") < text.index("Test CPU, 2 cores")
