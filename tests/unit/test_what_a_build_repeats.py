"""What a build of the site needs in several places is worked out once, and what nothing asks for is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_time import lines_of
from test_page_cache import HOSTS, write
from test_site import record

from paceline.analysis.claims import results
from paceline.analysis.compare import compare_points
from paceline.analysis.points import Point, points_of
from paceline.records.format.record import Measurement
from paceline.records.store.folder import RunRecord, load
from paceline.records.store.index import RecordIndex
from paceline.records.store.launches import last_of_launches, series_of, status_counts
from paceline.report.boards import standing
from paceline.report.charts.large import Box, _covered, _least_covered
from paceline.report.points import curves
from paceline.report.site import downloads
from paceline.report.site.build import SiteInput, render_site
from paceline.report.site.data import Site
from paceline.report.site.page_cache import PageCache


def test_claims_and_pages_share_the_points_of_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paceline.analysis import points as analysis_points
    from paceline.cli.publishing import building

    grouped: list[str] = []

    def points(record: RunRecord) -> list[Point]:
        grouped.append(record.run_id)
        return points_of(record)

    monkeypatch.setattr(building.content, "suite_files", dict)
    monkeypatch.setattr(analysis_points, "points_of", points)
    monkeypatch.setattr(standing, "points_of", points)
    for number, host in enumerate(HOSTS):
        write(tmp_path, number, host)
    loaded = load([tmp_path])
    shared = building.site_input(loaded)
    assert sorted(grouped) == sorted(r.run_id for r in loaded.records)
    files = dict(render_site(shared))
    assert len(grouped) == len(HOSTS)
    assert files == dict(render_site(SiteInput(loaded=load([tmp_path]), ledger=shared.ledger)))
    assert len(grouped) == 2 * len(HOSTS)


def test_claims_are_the_same_from_points_that_somebody_has() -> None:
    made = record(1)
    known = {made.run_id: points_of(made)}
    assert results.evaluate([made], []) == results.evaluate([made], [], lambda one: known[one.run_id])


def test_rows_of_a_table_are_made_where_its_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, host in enumerate(HOSTS):
        write(tmp_path / "results", number, host)
    made: list[str] = []
    real = downloads.board_rows

    def rows(board: standing.Board, found: Sequence[object]) -> list[downloads.Row]:
        made.append(board.host_class)
        return real(board, found)  # type: ignore[arg-type]

    monkeypatch.setattr(downloads, "board_rows", rows)

    def build() -> dict[str, str | bytes]:
        made.clear()
        given = SiteInput(loaded=load([tmp_path / "results"]))
        return dict(render_site(given, cache=PageCache(folder=tmp_path / "cache")))

    first = build()
    assert sorted(made) == sorted(HOSTS)
    assert build() == first
    assert made == []
    write(tmp_path / "results", 7, "another CPU")
    build()
    assert made == ["another CPU"]
    tables = Site(SiteInput(loaded=load([tmp_path / "results"]))).tables
    assert [table.num_rows for table in tables] == [len(table.rows()) for table in tables]


def test_twice_the_runs_take_about_twice_the_lines_to_compare() -> None:
    def compared(count: int) -> int:
        points = [p for n in range(count) for p in points_of(record(n, launches=2))]
        return lines_of(lambda: compare_points(points))

    compared(2)
    assert compared(24) < 2.1 * compared(12)


def test_an_index_groups_measurements_as_their_names_do(tmp_path: Path) -> None:
    path = write(tmp_path, 1, "CPU")
    index = RecordIndex(folder=tmp_path / "cache")
    index.read(path)
    index.write()
    kept, real = index.read(path), load([tmp_path]).records[0]
    assert not isinstance(kept.measurements[0], Measurement)
    series: dict[object, set[object]] = {}
    for one, other in zip(kept.measurements, real.measurements, strict=True):
        series.setdefault(series_of(one), set()).add(series_of(other))
    assert all(len(names) == 1 for names in series.values())
    assert len(series) >= len({series_of(m) for m in real.measurements}) > 1
    assert status_counts(kept) == status_counts(real)
    last = [(m.block, m.label, m.launch, m.metric.name) for m in last_of_launches(kept)]
    assert last == [(m.block, m.label, m.launch, m.metric.name) for m in last_of_launches(real)]
    assert {(m.block, m.label, m.launch): m.metric.name for m in real.measurements} == {
        (block, label, launch): name for block, label, launch, name in last
    }


EDGES = st.integers(0, 6)
BOXES = st.lists(
    st.tuples(EDGES, EDGES, EDGES, EDGES).map(
        lambda e: (float(e[0]), float(e[1]), float(e[0] + e[2]), float(e[1] + e[3]))
    ),
    min_size=1,
    max_size=8,
)


@given(boxes=BOXES, taken=BOXES)
def test_a_name_stands_where_it_covers_least_and_first_of_equal_places(
    boxes: list[Box], taken: list[Box]
) -> None:
    every = [sum(_covered(box, other) for other in taken) for box in boxes]
    assert _least_covered(boxes, taken) == every.index(min(every))
    assert _least_covered(boxes, []) == 0


def test_what_launches_stored_is_looked_for_once_and_not_for_each_axis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (point, *_) = points_of(record(1))
    looked: list[Measurement] = []
    real = curves._columns

    def columns(m: Measurement) -> dict[str, list[float]]:
        looked.append(m)
        return real(m)

    monkeypatch.setattr(curves, "_columns", columns)
    curves.curve_grid(point)
    assert len(looked) == sum(len(cell.measurements) for cell in point.cells.values()) > 0
