"""Speed-up and efficiency over ranks, from points that differ in their ranks alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import record_factory as factory

from paceline.records.store.folder import Loaded, RunRecord
from paceline.report.boards.scaling import scaled, scaling_charts, scaling_grid
from paceline.report.boards.standing import Board, select
from paceline.report.layout import layout_of
from paceline.report.site.build import SiteInput, render_site
from paceline.stats.unpaired import compare_unpaired

SUITE = {
    "suite": "training/example",
    "version": 1,
    "family": "training",
    "baseline": "native",
    "metrics": {"time_per_token": 0.02},
    "claims": [],
}
TIMES: dict[tuple[str, int], tuple[float, ...]] = {
    ("native", 1): (4.0, 4.1, 4.05),
    ("native", 2): (2.2, 2.3, 2.25),
    ("native", 4): (1.5, 1.6, 1.55),
    ("ring", 2): (2.0, 2.1, 2.05),
    ("ring", 4): (1.0, 1.1, 1.05),
}


def board_of(times: dict[tuple[str, int], tuple[float, ...]], **params: Any) -> tuple[Board, RunRecord]:
    host = {"usable_cores": 2}
    runner = {"name": "local-cpu", "driver": "local", "device": "cpu"}
    run = factory.make_run(suites=[SUITE], host=host, runner=runner)
    lines = [
        factory.measurement(
            run,
            label,
            launch,
            [value],
            metric="time_per_token",
            params={"ranks": ranks} | params,
            suite="training/example",
            family="training",
        )
        for (label, ranks), values in times.items()
        for launch, value in enumerate(values)
    ]
    record = RunRecord(path=Path("r.jsonl"), run=run, measurements=tuple(lines), events=(), sealed=True)
    (board,) = select([record]).boards
    return board, record


def test_every_technique_is_set_against_itself_at_its_own_fewest_ranks() -> None:
    board, _ = board_of(TIMES)
    found = {(one.label, one.ranks): one for one in scaled(board)}
    assert set(found) == {("native", 2), ("native", 4), ("ring", 4)}
    native, ring = found["native", 4], found["ring", 4]
    middle = {key: math.prod(values) ** (1 / 3) for key, values in TIMES.items()}
    assert native.speedup.value == pytest.approx(middle["native", 1] / middle["native", 4])
    assert native.efficiency.value == pytest.approx(native.speedup.value / 4)
    assert ring.fewest == 2
    assert ring.efficiency.value == pytest.approx(middle["ring", 2] / middle["ring", 4] / 2)
    cells = (board.points[i].cells for i in range(len(board.points)))
    by_ranks = {p.params["ranks"]: next(cells)["native", "time_per_token"].launches for p in board.points}
    expected = compare_unpaired(by_ranks[1], by_ranks[4])
    assert (native.speedup.low, native.speedup.high) == (expected.low, expected.high)
    assert native.efficiency.low == pytest.approx((expected.low or 0) / 4)


def test_a_page_shows_them_and_how_few_cores_a_rank_had() -> None:
    board, record = board_of(TIMES)
    grid = scaling_grid(board)
    headers = [h.text for h in grid.headers]
    rows = [dict(zip(headers, (c.text for c in row), strict=True)) for group in grid.groups for row in group]
    assert [row["cores a rank"] for row in rows if row["ranks"] == "4"] == ["0.5", "0.5"]
    assert [row["cores a rank"] for row in rows if row["ranks"] == "2"] == ["1"]
    (chart,) = scaling_charts(board)
    assert "efficiency over ranks" in chart.title
    page = str(dict(render_site(SiteInput(loaded=Loaded(records=[record]))))[f"boards/{board.slug}.html"])
    assert "speed-up" in page
    assert "share cores" in page


def test_points_that_differ_in_something_else_are_not_one_sweep() -> None:
    first, _ = board_of({("native", 1): (4.0, 4.1), ("native", 2): (2.2, 2.3)}, size="tiny")
    assert len(scaled(first)) == 1
    run = factory.make_run(suites=[SUITE])
    lines = [
        factory.measurement(
            run,
            "native",
            launch,
            [1.0],
            metric="time_per_token",
            params=params,
            suite="training/example",
            family="training",
        )
        for params in ({"ranks": 1, "size": "tiny"}, {"ranks": 2, "size": "small"})
        for launch in range(2)
    ]
    record = RunRecord(path=Path("r.jsonl"), run=run, measurements=tuple(lines), events=(), sealed=True)
    (board,) = select([record]).boards
    assert scaled(board) == []
    assert not scaling_grid(board).groups


def test_only_a_work_of_one_size_is_said_to_scale() -> None:
    assert layout_of("training").scaled == ("time_per_token",)
    assert layout_of("collectives").scaled == ()
