"""What a stranger asked of the site and did not find at once: noise by machine, links, changes, largest boards."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from typing import Any

import pytest
from test_site import record, render

from paceline.analysis.compare import compare_points
from paceline.report.boards import noise
from paceline.report.boards.noise import machine_grid, primary
from paceline.report.boards.page import runner_text, shared_params
from paceline.report.boards.paying import paying
from paceline.report.boards.standing import select, usable_points
from paceline.report.site.home import family_cards
from paceline.stats.verdicts import minimum_detectable


def boards(*records: Any) -> Any:
    return select(records, usable_points).boards


def test_noise_is_told_by_machine_before_the_harness_is() -> None:
    one, other = record(1), record(2, host_class="Other CPU, 8 cores")
    found = [(b, compare_points(b.points)) for b in boards(one, other)]
    rows = {row[0].text: [cell.text for cell in row] for group in machine_grid(found).groups for row in group}
    assert sorted(rows) == ["Other CPU, 8 cores", "Test CPU, 2 cores"]
    board, comparisons = next(f for f in found if f[0].host_class == "Test CPU, 2 cores")
    sizes = [minimum_detectable(c.effect, c.kind) for c in primary(board, comparisons)]
    told = sorted(s for s in sizes if s is not None)
    assert rows["Test CPU, 2 cores"][2:4] == [str(len(told)), f"{statistics.median(told):.1%}"]
    page = render(one, other, calibration={"fake": [{"figure": "false alarms", "value": 0.05}]})[
        "calibration.html"
    ]
    assert page.index("How noisy each machine is") < page.index("The statistics alone, on a simulated device")


def test_what_is_drawn_is_no_noise_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    (board,) = boards(record(1))
    monkeypatch.setattr(noise, "primary", lambda _, comparisons: list(comparisons))
    times = [c for c in compare_points(board.points) if c.metric == "latency"]
    virtual = [replace(c, metric="virtual_s") for c in times]
    assert machine_grid([(board, times)]).groups
    assert not machine_grid([(board, virtual)]).groups


def test_a_board_says_what_its_points_share_and_how_ranks_are_joined() -> None:
    (board,) = boards(record(1))
    assert "link loopback" in shared_params(board.points)
    assert not any("size" in text for text in shared_params(board.points)), "sizes differ"
    assert "dtype float32" not in shared_params(board.points), "it is so by default"
    page = next(text for name, text in render(record(1)).items() if name.startswith("boards/"))
    assert "all points: " in page


@pytest.mark.parametrize(
    ("runner", "says"),
    [
        ({"network": "host"}, "Ranks are processes of this machine, joined by its loopback."),
        (
            {"network": "namespaces", "default_link": "1gbit"},
            "Every rank is in a network namespace of its own, behind a link of a stated rate or delay: 1gbit where a "
            "point names none.",
        ),
        ({"driver": "slurm"}, ""),
    ],
)
def test_runners_are_told_in_words(runner: dict[str, str], says: str) -> None:
    assert runner_text(runner) == says


def test_a_family_leads_to_the_largest_board_of_a_suite_and_not_to_the_newest() -> None:
    large, small = record(1, sizes=(4096, 65536)), record(2, sizes=(4096,), host_class="Other CPU, 8 cores")
    (card,) = family_cards(boards(large, small))
    ((_, href),) = card.suites
    assert href == next(f"boards/{b.slug}.html" for b in boards(large, small) if len(b.points) == 2)


def test_trends_do_not_say_that_nothing_changed_where_nothing_could_be_seen() -> None:
    blind = render(record(1), record(2))["trends.html"]
    assert "cannot be seen yet" in blind
    assert "No series changed lately" not in blind
    assert "cannot be seen yet" not in render()["trends.html"], "there is no series at all"


def test_techniques_without_results_are_of_another_kind_in_the_search() -> None:
    index = render(record(1))["search-index.js"]
    assert re.search(r'\["Technique","ring, collectives"', index)


@pytest.mark.parametrize(("value", "side", "verdict"), [(0.5, "higher", "slower"), (-0.5, "lower", "faster")])
def test_a_difference_says_on_which_side_it_is(value: float, side: str, verdict: str) -> None:
    (board,) = boards(record(1))
    point = board.points[0]
    ratios = compare_points(board.points)
    ring = next(c for c in ratios if c.point is point and c.label == "ring" and c.metric == "latency")
    effect = replace(ring.effect, value=value, low=value - 0.1, high=value + 0.1)
    told = replace(ring, kind="difference", effect=effect, verdict=replace(ring.verdict, name=verdict))
    lines = paying("ring", [(board, "ring", [point])], {id(point): [told]})
    (line,) = (*lines.pays, *lines.not_paying)
    assert f"is {side} than native's ({value:g} [" in line.text
