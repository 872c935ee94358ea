"""What a board answers first, when a technique pays, and how a telephone shows both."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_findings import KB, MB, claim, known, measured, ratio_of_samples
from test_site import Page, render

from paceline.cli import application
from paceline.cli.publishing.site import findings_text, write_charts
from paceline.report.boards.paying import Paying, paying
from paceline.report.findings.board_answer import Answer, answer
from paceline.report.findings.rules import findings
from paceline.report.html import verdict_class
from paceline.report.runs.page import claim_grid

ERRORS = {"native": 1e-7, "tree": 1e-7, "lossy": 0.2}
CROSSING = {KB: {"native": 1e-3, "tree": 0.5e-3}, MB: {"native": 4e-3, "tree": 8e-3}}
PAID = {KB: {"native": 1.0, "tree": 0.8, "lossy": 0.1}}


def answered(*args: object, **changes: object) -> Answer:
    given = known(measured(*args, **changes))  # type: ignore[arg-type]
    (board,) = given.boards
    found = answer(board, given.of(board), [])
    assert found is not None
    return found


def test_an_answer_names_the_winner_of_each_point_and_where_the_order_changes() -> None:
    found = answered(1, CROSSING)
    ratio = ratio_of_samples(measured(1, CROSSING), "tree", KB)
    assert re.fullmatch(
        rf"Best in latency: native, the baseline, at 1 of 2 points, then tree at 1 of 2 points \({ratio:.3g} × "
        r"\[\S+, \S+\] native\)\.",
        found.winners,
    )
    assert found.condition.startswith("The order changes: tree is faster than native below about 32")


def test_one_winner_at_all_points_says_how_far_it_is_ahead() -> None:
    found = answered(1, {KB: {"native": 1.0, "tree": 0.5}, MB: {"native": 1.0, "tree": 0.8}})
    assert found.winners == "Best in latency: tree at all 2 points (0.5 to 0.799 × native)."
    assert found.condition == "No change of order along the points is decided."


def test_what_loses_quality_wins_nothing_and_the_answer_says_who_paid() -> None:
    found = answered(1, PAID, errors=ERRORS)
    assert found.winners.startswith("Best in latency, of those that lose no quality: tree (0.799 × [")
    assert found.condition == "What lossy gained was paid for with quality."
    assert found.chart is not None
    assert "latency" in found.chart.title


def test_nothing_decided_is_what_the_answer_says() -> None:
    found = answered(1, {KB: {"native": 1.0, "tree": 0.5}}, launches=1)
    assert found.winners == "No winner is decided in latency at this point."
    assert found.condition == "No comparison with the baseline is decided."


def pays(label: str, given: object, **changes: object) -> Paying:
    made = known(measured(1, given, **changes))  # type: ignore[arg-type]
    (board,) = made.boards
    by_point = {id(p): [c for c in made.of(board) if c.point is p] for p in board.points}
    return paying(label, [(board, label, board.points)], by_point)


def test_a_technique_says_when_it_pays_and_when_not() -> None:
    found = pays("tree", CROSSING)
    (gain,), (loss,) = found.pays, found.not_paying
    assert gain.text.startswith("collectives/all-reduce (local-cpu, Test CPU, 2 cores), at 1 KiB: 0.5 × [")
    assert gain.text.endswith("the latency of native")
    assert ", at 1 MiB: 2 × [" in loss.text
    assert gain.href.startswith("boards/")


def test_a_gain_in_another_headline_metric_is_told_where_the_ranked_one_has_none() -> None:
    times = {KB: {"native": 1.0, "tree": 1.0}}
    found = pays("tree", times, errors={"native": 0.4, "tree": 0.2})
    assert found.not_paying[0].text.endswith("no difference in latency to native above 2 %")
    assert "relative error is lower than native's" in found.pays[0].text
    unasked = pays("tree", times, errors={"native": 0.4, "tree": 0.2}, diagnostic=["relative_l2_error"])
    assert not unasked.pays


def test_a_gain_that_was_paid_for_is_no_case_in_which_it_pays() -> None:
    found = pays("lossy", PAID, errors=ERRORS)
    assert not found.pays
    assert found.not_paying[0].text.endswith("the latency of native, but worse (by 0.2 in relative error)")


def test_an_error_beside_an_exact_baseline_which_has_none_is_a_price_as_well() -> None:
    lossy = {"lossy": ERRORS["lossy"]}
    found = pays("lossy", PAID, errors=lossy)
    assert found.not_paying[0].text.endswith("the latency of native, but worse (by 0.2 in relative error)")
    assert not pays("lossy", PAID, errors={"lossy": 5e-4}).not_paying, "a thousandth is rounding"
    assert not pays("lossy", PAID, errors={"tree": 0.2}).not_paying, "another's error is none of its own"


def test_equal_and_open_comparisons_are_told_apart() -> None:
    even = pays("tree", {KB: {"native": 1.0, "tree": 1.0}})
    assert even.not_paying[0].text.endswith("no difference in latency to native above 2 %")
    unknown = pays("tree", {KB: {"native": 1.0, "tree": 0.5}}, launches=1)
    assert unknown.unknown[0].text.endswith("not told apart from native in latency")


def test_verdict_and_ratio_stand_behind_the_technique_and_equal_ones_say_above_what() -> None:
    given = measured(
        1, {KB: {"native": 1.0, "tree": 1.0, "star": 2.0}, MB: {"native": 1.0, "tree": 1.0, "star": 2.0}}
    )
    text = next(t for n, t in render(given).items() if n.startswith("boards/"))
    heads = re.findall(r'<th scope="col" class="([^"]*)">([^<]*)</th>', text)
    names = [name for _, name in heads]
    begin = names.index("technique")
    assert names[begin : begin + 4] == ["technique", "verdict", "× baseline", "latency"]
    assert all(kind == "text key" for kind, _ in heads[:begin])
    assert '<tbody data-place="size 1 KiB">' in text
    assert "no difference above 2 %" in text
    rows = [row for row in Page(text).rows if "star" in row and row[-1].startswith("2026-")]
    assert len(rows) == 2
    assert all(row[row.index("star") + 1] == "slower" for row in rows)


def test_a_gain_at_a_price_has_a_colour_of_its_own() -> None:
    text = next(t for n, t in render(measured(1, PAID, errors=ERRORS)).items() if n.startswith("boards/"))
    assert (
        '<td class="text verdict price"><span>faster, but worse (by 0.2 in relative error)</span></td>'
        in text
    )
    assert verdict_class("faster") == "good"
    assert verdict_class("no difference above 5 %") == "even"
    assert verdict_class("partly (20 % of the gain)") == "even"


def test_the_technique_page_begins_with_when_it_pays() -> None:
    files = render(measured(1, CROSSING))
    text = unescape(next(t for n, t in files.items() if n.startswith("techniques/collectives-tree-")))
    assert text.index('id="pays"') < text.index('id="pays-not"') < text.index("<h2>Results</h2>")


def test_a_claim_that_held_in_part_says_so_on_its_page() -> None:
    grid = claim_grid([claim("partly")], {}, {})
    (cell,) = [c for c in grid.groups[0][0] if "verdict" in c.kind]
    assert (cell.text, cell.kind) == ("partly (20 % of the gain)", "text verdict even")


def test_findings_are_written_as_markdown_with_a_chart_each_and_old_charts_go(tmp_path: Path) -> None:
    (tmp_path / "finding-7.svg").write_text("old")
    (tmp_path / "another.svg").write_text("kept")
    made = findings(known(measured(1, CROSSING)))
    paths = write_charts(made, tmp_path)
    assert [Path(p).name for p in paths] == ["finding-1.svg", "finding-2.svg"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["another.svg", "finding-1.svg", "finding-2.svg"]
    text = findings_text(made, paths)
    assert text.startswith(
        f"**Largest gain, collectives.** {made[0].sentence}\n\n![largest gain, collectives]("
    )
    assert "<svg" not in text


@pytest.mark.parametrize("wrong", ["0", "51", "many"])
def test_the_command_refuses_a_number_of_findings_that_is_none(tmp_path: Path, wrong: str) -> None:
    options = ["site", "findings", "--results", str(tmp_path), "--most", wrong]
    assert CliRunner().invoke(application, options).exit_code == 2


def test_without_findings_the_text_says_what_would_lead_to_one() -> None:
    assert findings_text([], []).endswith("paceline run --budget 5min")
