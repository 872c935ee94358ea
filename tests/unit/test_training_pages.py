"""The page of a training point: curves over tokens, seconds and bytes, trade-offs, parts of a step, equal budgets."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pytest
from test_numbers_on_pages import quantity
from test_site import Page
from training_record import BASELINE, CURVES, training_record

from paceline.records.store.folder import Loaded, RunRecord
from paceline.report.site.build import SiteInput, render_site
from paceline.report.words.names import metric_label

AXES = ("tokens", "seconds", "bytes")


def page_of(record: RunRecord) -> str:
    """Return the page of a record's only point."""
    files = render_site(SiteInput(loaded=Loaded(records=[record])))
    (text,) = [str(text) for name, text in files if name.startswith("cases/")]
    return text


@pytest.fixture(scope="module")
def text() -> str:
    return page_of(training_record())


def drawing(text: str, title: str) -> str:
    """Return the one drawing of a page that is called so."""
    (found,) = re.findall(rf'<svg class="chart" [^>]*aria-label="{re.escape(title)}">.*?</svg>', text, re.S)
    return str(found)


def front(loss: str) -> str:
    """Return how the front of a loss and bytes is called."""
    title = f"{metric_label(loss)} against {metric_label('wire_bytes')}, by technique, with the frontier"
    return title.replace("'", "&#39;")


def named(drawn: str) -> set[str]:
    """Return the names at the ends of lines."""
    return set(re.findall(r'<text class="label [^"]*"[^>]*>([^<]*)</text>', drawn))


def marks(drawn: str, colour: str) -> list[tuple[float, float]]:
    """Return where a technique's marks are, in pixels."""
    found = re.findall(rf'<circle class="dot {colour}" cx="([\d.]+)" cy="([\d.]+)"', drawn)
    return [(float(x), float(y)) for x, y in found]


def rows_below(text: str, headers: Sequence[str]) -> list[list[str]]:
    """Return the rows of the one table with these headers."""
    rows = Page(text).rows
    (place,) = [i for i, row in enumerate(rows) if row == list(headers)]
    found = []
    for row in rows[place + 1 :]:
        if row[0] in ("technique", "metric", "run"):
            break
        found.append(row)
    return found


@pytest.mark.parametrize("axis", AXES)
def test_losses_are_drawn_over_tokens_seconds_and_bytes_as_static_svg(text: str, axis: str) -> None:
    drawn = drawing(text, f"excess_loss over {axis}, by technique")
    assert named(drawn) == {label for label, columns in CURVES.items() if axis in columns}
    assert ("ddp" in named(drawn)) == (axis != "bytes")
    assert f">{axis}</text>" in drawn
    assert ">excess_loss</text>" in drawn
    assert "<script" not in drawn
    assert "data-" not in drawn


@pytest.mark.parametrize("axis", AXES)
def test_both_axes_of_a_curve_are_logarithmic(text: str, axis: str) -> None:
    drawn = drawing(text, f"excess_loss over {axis}, by technique")
    (x1, y1), (x2, y2), (x3, y3) = marks(drawn, "base")  # the start has spent nothing and has no place
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2), "decades are as far apart as decades"
    assert x2 - x1 > 50
    losses = CURVES[BASELINE]["excess_loss"][1:]
    expected = math.log(losses[1] / losses[2]) / math.log(losses[0] / losses[1])
    assert (y3 - y2) / (y2 - y1) == pytest.approx(expected, rel=0.01)


def test_the_table_of_curves_holds_the_numbers_of_the_record(text: str) -> None:
    rows = rows_below(text, ("technique", *AXES, "excess_loss"))
    labels = (BASELINE, "ddp", "diloco", "terngrad")
    assert [row[0] for row in rows] == [label for label in labels for _ in range(4)]
    for number, (label, *cells) in enumerate(rows):
        columns = CURVES[label]
        for name, cell in zip((*AXES, "excess_loss"), cells, strict=True):
            if name in columns:
                assert quantity(cell) == pytest.approx(columns[name][number % 4], rel=0.006), (label, name)
            else:
                assert (label, name, cell) == ("ddp", "bytes", "–")


def test_a_technique_whose_bytes_nobody_sees_keeps_its_rows(text: str) -> None:
    rows = [row for row in rows_below(text, ("technique", *AXES, "excess_loss")) if row[0] == "ddp"]
    assert [row[3] for row in rows] == ["–"] * 4
    assert [row[4] for row in rows] == ["1.4 nat", "1 nat", "0.6 nat", "0.2 nat"]


def test_the_front_of_bytes_and_loss_is_drawn_and_listed(text: str) -> None:
    drawn = drawing(text, front("excess_loss"))
    assert drawn.count('class="frontier"') == 1
    assert named(drawn) == {BASELINE, "diloco", "terngrad"}
    rows = rows_below(text, ("technique", "trade-off", "across", "up", "on the frontier"))
    best = {row[0]: row[4] for row in rows if row[1] == "excess_loss against wire_bytes"}
    assert best == {BASELINE: "yes", "diloco": "yes", "terngrad": "no"}


def test_a_front_of_the_loss_itself_stands_in_where_the_excess_is_unknown(text: str) -> None:
    other = page_of(training_record(quantity="eval_loss"))
    drawn = drawing(other, front("eval_loss"))
    assert drawn.count('class="frontier"') == 1
    rows = rows_below(other, ("technique", "trade-off", "across", "up", "on the frontier"))
    assert {row[1] for row in rows} == {"eval_loss against wire_bytes", "eval_loss against time_per_token"}
    assert "eval_loss against" not in text, "not both where the excess is known"
    for axis in AXES:
        assert named(drawing(other, f"eval_loss over {axis}, by technique"))
    assert rows_below(other, ("technique", *AXES, "eval_loss"))


def test_the_parts_of_a_step_are_drawn_in_their_proportions(text: str) -> None:
    drawn = drawing(text, "parts of one step, by technique")
    for name in ("compute_s", "gradients_s", "update_s", "parameters_s"):
        assert f">{name}</text>" in drawn
    bars = re.findall(r'<rect class="part (s\d)" x="[\d.]+" y="34.0" width="([\d.]+)" height="18"/>', drawn)
    assert [colour for colour, _ in bars] == ["s0", "s1", "s2"], "a part of no seconds has no bar"
    widths = [float(width) for _, width in bars]
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.01)
    assert widths[1] / widths[2] == pytest.approx(2, rel=0.01)


def equal_rows(text: str, axis: str, loss: str = "excess_loss") -> dict[str, list[str]]:
    headers = ("technique", axis, loss, "baseline's", "− baseline", "between evaluations", "n", "remark")
    return {row[0]: row[1:] for row in rows_below(text, headers)}


def middle(text: str) -> float:
    """Return the middle of a range of launches whose losses lie 0.01 apart."""
    match = re.fullmatch(r"([\d.]+)–([\d.]+) nat \(range of 3\)", text)
    assert match, text
    low, high = map(float, match.groups())
    assert high - low == pytest.approx(0.02, abs=0.0011), text
    return (low + high) / 2


def test_a_page_gives_the_loss_at_equal_tokens_seconds_and_bytes(text: str) -> None:
    for axis in AXES:
        assert f"<h3>excess_loss at equal {axis}</h3>" in text
        assert set(equal_rows(text, axis)) == {"ddp", "diloco", "terngrad"}
    budget, own, base, effect, *_, remark = equal_rows(text, "tokens")["diloco"]
    assert (budget, own, base) == (
        "10 ktoken",
        "0.29–0.31 nat (range of 3)",
        "0.19–0.21 nat (range of 3)",
    )
    assert (quantity(effect), remark) == (0.1, "where both end")


def test_at_equal_seconds_the_slower_one_is_read_on_its_curve(text: str) -> None:
    # after 50 s the baseline is between 0.6 at 10 s and 0.2 at 100 s: 0.6 - 0.4 * log10(50 / 10) = 0.3204
    budget, own, base, effect, between, count, remark = equal_rows(text, "seconds")["diloco"]
    assert (budget, count, remark) == ("50 s", "3", "where diloco ends")
    assert middle(own) == pytest.approx(0.3)
    assert middle(base) == pytest.approx(0.3204, rel=0.006)
    assert quantity(effect) == pytest.approx(0.3 - 0.3204, rel=0.006)
    assert between == "[-0.3, 0.1]"  # the losses of all techniques shift alike from launch to launch
    # the baseline ends after 100 s, where terngrad is between 0.9 at 20 s and 0.8 at 200 s
    budget, own, base, _, between, _, remark = equal_rows(text, "seconds")["terngrad"]
    assert (budget, between, remark) == ("100 s", "[0.6, 0.7]", "where ddp-ring ends")
    assert middle(base) == pytest.approx(0.2)
    assert middle(own) == pytest.approx(0.9 - 0.1 * math.log10(5), rel=0.006)


def test_at_equal_bytes_a_technique_whose_bytes_nobody_sees_is_absent(text: str) -> None:
    rows = equal_rows(text, "bytes")
    assert rows["ddp"] == ["–"] * 5 + ["0", "absent: the bytes of ddp are not known"]
    budget, own, base, effect, between, _, remark = rows["diloco"]
    assert quantity(budget) == pytest.approx(4e3, rel=0.006)
    assert middle(own) == pytest.approx(0.3)
    assert middle(base) == pytest.approx(1.0 - 0.4 * math.log10(4), rel=0.006)
    assert quantity(effect) == pytest.approx(0.3 - (1.0 - 0.4 * math.log10(4)), rel=0.006)
    assert (between, remark) == ("[-0.7, -0.3]", "where diloco ends")


def test_bytes_that_were_counted_in_two_ways_are_not_compared() -> None:
    rows = equal_rows(page_of(training_record(counted_by={"diloco": "kernel"})), "bytes")
    assert rows["diloco"][-1] == (
        "absent: bytes are counted in two ways, diloco's by the kernel and ddp-ring's by the communicator"
    )
    assert rows["diloco"][:-1] == ["–"] * 5 + ["0"]
    assert rows["terngrad"][0] != "–"
