"""Pages of points at which questions are answered: the plain vote's curve, levels, and traces as they were told."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import record_factory as factory
from test_site import Page, render

from paceline.analysis.points import points_of
from paceline.families.reasoning.core.planning.metrics import ANOTHER_MODELS
from paceline.records.store.folder import RunRecord
from paceline.report.points import answers, tradeoffs
from paceline.report.words.estimates import ABSENT
from paceline.stats.estimates import wilson
from paceline.stats.paired import clustered, mcnemar

HOSTILE = "<script>alert(1)</script> & <b>"
POINT = {"op": "solve", "model": "weak", "questions": 20, "samples": 4, "ranks": 1}
SUITE = {
    "suite": "reasoning/example",
    "version": 1,
    "family": "reasoning",
    "baseline": "native",
    "metrics": {"tokens_reordered": 0.02, "accuracy_reordered": 0.01},
    "claims": [],
}
CURVE = {"tokens_reordered": [100.0, 200.0, 400.0], "accuracy_reordered": [0.5, 0.6, 0.7]}
FIGURES = {"native": (400.0, 0.7), "ring": (200.0, 0.65), "tree": (300.0, 0.6)}


def example(given: str | None) -> dict[str, Any]:
    traces = [["answers 5", HOSTILE], ["given up", "T1 7 +"]]
    return {"question": "Q T1 7 + 15 ?", "level": 1, "answer": "5", "given": given, "traces": traces}


def answered() -> RunRecord:
    run = factory.make_run(suites=[SUITE])
    lines = []
    for label, (tokens, accuracy) in FIGURES.items():
        for launch in range(3):
            kept: dict[str, Any] = {"votes": CURVE, "right_by_level": {"1": [4, 5], "10": [launch, 5]}}
            kept["right_traces"] = [[4, 0, 2, 2], 4]
            if launch == 0:
                kept["examples"] = [example({"native": "5", "ring": "7", "tree": None}[label])]
            for metric, value in (("tokens_reordered", tokens), ("accuracy_reordered", accuracy)):
                lines.append(
                    factory.measurement(
                        run,
                        label,
                        launch,
                        [value * (1 + 0.001 * launch)],
                        metric=metric,
                        params=POINT,
                        family="reasoning",
                        suite="reasoning/example",
                        accounting=kept if metric == "tokens_reordered" else None,
                    )
                )
    return factory.in_memory(run, lines)


@pytest.fixture(scope="module")
def page() -> str:
    files = render(answered())
    (text,) = [t for name, t in files.items() if name.startswith("cases/")]
    return text


def test_where_more_is_better_the_frontier_rises(page: str) -> None:
    assert tradeoffs.frontier([(1, 5), (2, 4), (3, 7), (3, 6)], rising=True) == [(1, 5), (3, 7)]
    rows = {row[0]: row[-1] for row in Page(page).rows if len(row) == 5 and "against tokens" in row[1]}
    assert rows == {"native": "yes", "ring": "yes", "tree": "no"}
    assert "higher and further left is better" in page


def test_what_a_vote_of_equal_accuracy_costs_stands_below(page: str) -> None:
    """native is the curve's own end; ring is right 0.65 of the time for 200 tokens, where a vote needs 300."""
    rows = {row[0]: row[2] for row in Page(page).rows if len(row) == 3 and row[1] == "accuracy_reordered"}
    assert set(rows) == set(FIGURES)
    assert rows["ring"].startswith("1.5")
    assert rows["tree"].startswith("0.67")
    record = answered()
    reason = {"gain_at_equal_tokens": ANOTHER_MODELS}
    told_so = [
        m.model_copy(update={"absent": reason}) if m.label == "ring" else m for m in record.measurements
    ]
    (point,) = points_of(replace(record, measurements=told_so))
    (told,) = [row for group in tradeoffs.equal_grid(point).groups for row in group if row[0].text == "ring"]
    assert "another model's tokens" in told[2].text


def test_the_plain_votes_whole_curve_is_drawn_beneath(page: str) -> None:
    assert page.count('class="line beneath"') == 1
    _, _, drawn = page.partition('class="line beneath" d="M')
    places = [tuple(map(float, pair.split())) for pair in drawn[: drawn.index('"')].split("L")]
    assert len(places) == 3
    (x0, y0), (x1, y1), (x2, y2) = places
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2), "tokens double each time on a logarithmic axis"
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2), "accuracy rises by equal steps on a linear one"
    assert y0 > y1


def test_levels_pool_launches_in_the_order_of_numbers() -> None:
    (point,) = points_of(answered())
    rows = [[cell.text for cell in row] for rows in answers.level_grid(point).groups for row in rows]
    low, high = wilson(12, 15)
    assert rows[0] == ["1", *[f"80% [{low:.0%}, {high:.0%}]"] * 3]
    assert rows[1][0] == "10"
    assert rows[1][1].startswith("20% [")
    assert not math.isclose(low, high)


def test_single_traces_are_counted_by_questions() -> None:
    (point,) = points_of(answered())
    rows = [[cell.text for cell in row] for rows in answers.trace_grid(point).groups for row in rows]
    assert [row[:3] for row in rows] == [[str(launch), "4", "4"] for launch in range(3)]
    found = clustered([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]])
    assert found.share_between is not None
    assert found.low is not None
    assert found.low < 0, "what is shown ends where shares do"
    assert rows[0][3:] == [
        "0.500 [0.000, 1.000]",
        f"{found.share_between:.0%}",
    ]


def test_questions_are_compared_one_by_one() -> None:
    run = factory.make_run(suites=[SUITE])
    answers_of = {
        "native": [1, 0, 0, 1, 0, 1, 1, 0],
        "ring": [1, 1, 1, 1, 1, 1, 0, 1],
        "tree": [1, 0, 0, 1, 0, 1, 1, 0],
    }
    lines = [
        factory.measurement(
            run,
            label,
            launch,
            [float(x) for x in (marks if label != "ring" or launch < 2 else marks[:3])],
            metric="accuracy",
            params=POINT,
            family="reasoning",
            suite="reasoning/example",
        )
        for label, marks in answers_of.items()
        for launch in range(3)
    ]
    (point,) = points_of(factory.in_memory(run, lines))
    rows = {
        row[0].text: [c.text for c in row[1:]] for rows in answers.paired_grid(point).groups for row in rows
    }
    assert rows["ring"][:4] == ["accuracy", "16", "8", "2"], "a launch of other questions is left out"
    assert rows["ring"][4].startswith("+0.375 [")
    assert float(rows["ring"][5]) > 0.375
    assert rows["ring"][6] == f"{min(1, 2 * mcnemar(8, 2)):.2g}"
    assert rows["tree"] == ["accuracy", "24", "0", "0", "+0.000", ABSENT, "1"]
    assert "native" not in rows


def test_an_answer_in_other_words_is_right_where_its_grader_says_so() -> None:
    told = answers._told("native", "\\frac{1}{2}", example("0.5") | {"right": True})
    assert told.verdict == "0.5, right"
    assert answers._told("native", "\\frac{1}{2}", example("0.4") | {"right": False}).verdict == "0.4, wrong"


def test_traces_are_shown_as_text_and_not_as_markup(page: str) -> None:
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;" in page
    for verdict in ("5, right", "7, wrong", "no answer"):
        assert f": {verdict}</h3>" in page
    assert page.count('<details class="example">') == 1, "techniques share a question's place"
    assert "given up" in page


def test_points_without_answers_have_no_such_sections() -> None:
    from test_site import record

    text = next(t for name, t in render(record(1)).items() if name.startswith("cases/"))
    assert "Right answers by level" not in text
    assert "Some questions" not in text
