"""Any two techniques of a board, and a suite on several machines: what stands side by side, and what must not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from test_site import SUITE, Page, record, render

from paceline.analysis.compare import compare_points, duels, ranks
from paceline.analysis.points import points_of
from paceline.records.store.folder import RunRecord
from paceline.report.boards.pairs import duel_text, machine_grid, on_machines, pair_grid
from paceline.report.boards.standing import Board, select

ELSEWHERE = "Another CPU, 2 cores"


def boards_of(*records: RunRecord) -> tuple[Board, ...]:
    return select(records).boards


def texts(page: str) -> list[list[str]]:
    return [row for row in Page(page).rows if len(row) > 2]


def test_every_pair_of_techniques_has_a_row_at_every_point() -> None:
    (board,) = boards_of(record(1))
    grid = pair_grid(board, "../")
    pairs = [(group[0][0].text, group[0][1].text) for group in grid.groups]
    assert pairs == sorted(pairs)
    names = sorted({label for p in board.points for label in p.labels})
    assert set(pairs) == {(a, b) for a in names for b in names if a < b}
    assert all(len(group) == len(board.points) for group in grid.groups)


def test_the_verdict_of_a_pair_is_the_one_on_which_ranks_rest() -> None:
    (point, *_) = points_of(record(1))
    places = ranks(point, "latency")
    for duel in duels(point, "latency"):
        before = places[duel.first][1] < places[duel.second][0]
        after = places[duel.second][1] < places[duel.first][0]
        assert (duel.verdict.name == "faster", duel.verdict.name == "slower") == (before, after)
        winner = duel.first if before else duel.second
        assert duel_text(duel) == f"{winner} is faster" or not (before or after)


def test_a_pair_with_the_baseline_says_what_the_board_says() -> None:
    points = points_of(record(1))
    for comparison in compare_points(points, metrics=["latency"]):
        (own,) = [
            d
            for d in duels(comparison.point, "latency")
            if {d.first, d.second} == {comparison.label, comparison.point.baseline}
        ]
        value = own.effect.value if own.first == comparison.label else 1 / own.effect.value
        assert abs(value / comparison.effect.value - 1) < 1e-9


def test_machines_are_set_side_by_side_against_their_own_baselines() -> None:
    boards = boards_of(record(1), record(2, host_class=ELSEWHERE))
    (suite,) = on_machines(boards)
    assert len(suite.places) == 2 and any(ELSEWHERE in place for place in suite.places)
    found: dict[int, Any] = {}
    for c in compare_points([p for b in boards for p in b.points]):
        found.setdefault(id(c.point), []).append(c)
    grid = machine_grid(suite, found, "")
    assert [h.text for h in grid.headers][3:] == suite.places
    rows = [row[-4:] for group in grid.groups for row in group]
    assert all(row[1].text == "agree" for row in rows)
    assert all(a.text == b.text and a.href != b.href for *_, a, b in rows), "the same numbers, of other runs"
    assert all("×" in row[2].text for row in rows)


def test_another_version_or_baseline_of_a_suite_stands_beside_nothing() -> None:
    other = record(2, host_class=ELSEWHERE, suites=[{**SUITE, "baseline": "ring"}])
    assert on_machines(boards_of(record(1), other)) == []
    assert on_machines(boards_of(record(1), record(2))) == []
    assert on_machines(boards_of(record(1, sizes=(8,)), record(2, sizes=(16,), host_class=ELSEWHERE))) == []


def test_a_point_of_one_machine_alone_is_left_to_its_board() -> None:
    boards = boards_of(record(1, sizes=(8, 16)), record(2, sizes=(16, 32), host_class=ELSEWHERE))
    (suite,) = on_machines(boards)
    found: dict[int, Any] = {}
    for c in compare_points([p for b in boards for p in b.points]):
        found.setdefault(id(c.point), []).append(c)
    (group,) = machine_grid(suite, found, "").groups
    assert "16 B" in group[0][0].text


def test_pages_lead_to_pairs_and_machines_and_these_to_points() -> None:
    pages = render(record(1), record(2, host_class=ELSEWHERE))
    chooser = pages["comparisons.html"]
    pairs = {name for name in pages if name.startswith("pairs/")}
    machines = {name for name in pages if name.startswith("machines/")}
    assert len(pairs) == 2 and len(machines) == 1
    assert set(re.findall(r'href="((?:pairs|machines)/[^"]+)"', chooser)) == pairs | machines
    for name in pairs:
        board = pages[name.replace("pairs/", "boards/")]
        assert f'href="../{name}"' in board and f'href="../{next(iter(machines))}"' in board
        assert texts(pages[name])
    assert all(len(row) >= 4 for row in texts(pages[next(iter(machines))]))


def test_one_technique_alone_makes_no_page_of_pairs() -> None:
    alone = record(1)
    kept = tuple(m for m in alone.measurements if m.label == "native")
    pages = render(replace(alone, measurements=kept))
    assert not [name for name in pages if name.startswith("pairs/")]
    assert "No board has two techniques with a number." in pages["comparisons.html"]
