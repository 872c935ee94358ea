"""Curves read at equal budgets, against numbers that were reckoned by hand."""

from __future__ import annotations

import math

import pytest
from training_record import BASELINE, CURVES, training_record

from paceline.analysis.points import points_of
from paceline.base.families.family import load_family
from paceline.report.points.equal_budgets import Shared, at_equal, between, effect, equal_grids, read_curve

LOSS = load_family("training").metric("excess_loss")
TIME = load_family("training").metric("time_per_token")
"""Compared by ratio."""
Columns = dict[str, list[float]]


def curve(spent: list[float], losses: list[float]) -> Columns:
    return {"bytes": spent, "excess_loss": losses}


def shared(own: list[Columns], base: list[Columns]) -> Shared:
    return at_equal(dict(enumerate(own)), dict(enumerate(base)), "excess_loss", "bytes")


def test_a_curve_is_read_on_a_line_over_the_logarithm_of_what_was_spent() -> None:
    found = read_curve([0.0, 10.0, 1000.0], [3.0, 2.0, 1.0], 100.0)
    assert found is not None
    assert found.value == pytest.approx(1.5)  # halfway between 10 and 1000, by factors
    assert (found.least, found.most) == (1.0, 2.0)


def test_an_evaluation_at_the_budget_is_taken_as_it_is() -> None:
    found = read_curve([0.0, 10.0, 1000.0], [3.0, 2.0, 1.0], 10.0)
    assert found is not None
    assert (found.value, found.least, found.most) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("budget", [9.9, 1000.1])
def test_no_curve_is_read_beyond_its_ends(budget: float) -> None:
    assert read_curve([10.0, 1000.0], [2.0, 1.0], budget) is None


def test_between_a_start_without_cost_and_the_next_evaluation_only_both_are_known() -> None:
    found = read_curve([0.0, 10.0], [3.0, 2.0], 5.0)
    assert found is not None
    assert (found.value, found.least, found.most) == (None, 2.0, 3.0)


def test_of_evaluations_at_equal_cost_the_last_counts() -> None:
    spent, losses = [0.0, 10.0, 10.0, 10.0, 1000.0], [3.0, 2.5, 2.2, 2.0, 1.0]
    at, behind = read_curve(spent, losses, 10.0), read_curve(spent, losses, 100.0)
    assert at is not None and at.value == 2.0
    assert behind is not None and behind.value == pytest.approx(1.5)


def test_a_loss_that_rises_again_is_read_as_it_is_and_not_at_its_best() -> None:
    found = read_curve([1.0, 10.0, 1000.0], [2.0, 0.5, 1.5], 100.0)
    assert found is not None
    assert found.value == pytest.approx(1.0)
    assert (found.least, found.most) == (0.5, 1.5)
    end = read_curve([1.0, 10.0, 1000.0], [2.0, 0.5, 1.5], 1000.0)
    assert end is not None and end.value == 1.5


def test_what_is_spent_cannot_become_less() -> None:
    assert read_curve([0.0, 10.0, 5.0], [3.0, 2.0, 1.0], 5.0) is None


def test_the_budget_of_a_launch_is_where_the_first_of_the_two_ends() -> None:
    # one ends at 100 and the other goes on to 1000 in the first launch, and the other way round in the second
    short, long = curve([0.0, 100.0], [3.0, 1.0]), curve([0.0, 10.0, 1000.0], [3.0, 2.0, 0.5])
    found = shared([short, long], [long, short])
    assert found.budgets == {0: 100.0, 1: 100.0}
    assert (found.own_ends, found.base_ends) == ({0}, {1})
    halfway = 2.0 - 1.5 / 2
    assert found.own[0].value == 1.0
    assert found.base[0].value == pytest.approx(halfway)
    assert found.own[1].value == pytest.approx(halfway)


def test_the_difference_has_students_interval_over_launches() -> None:
    own = [curve([0.0, 100.0], [3.0, loss]) for loss in (1.0, 1.1, 1.2)]
    base = [curve([0.0, 10.0, 1000.0], [3.0, 2.0, 1.0])] * 3
    estimate = effect(shared(own, base), LOSS)
    assert estimate is not None
    assert estimate.low is not None and estimate.high is not None
    half = 4.302653 * 0.1 / math.sqrt(3)  # of three launches
    assert estimate.value == pytest.approx(1.1 - 1.5)
    assert (estimate.low, estimate.high) == (pytest.approx(-0.4 - half), pytest.approx(-0.4 + half))
    # the baseline lies between 2 and 1: the differences between 1.1 - 2 and 1.1 - 1, each with its interval
    whole = between(shared(own, base), LOSS)
    assert whole == (pytest.approx(-0.9 - half), pytest.approx(0.1 + half))
    assert whole[0] < estimate.low < estimate.high < whole[1]


def test_what_is_compared_by_ratio_is_so_here() -> None:
    own = [curve([0.0, 100.0], [3.0, 1.0]), curve([0.0, 100.0], [3.0, 1.0])]
    base = [curve([0.0, 10.0, 1000.0], [3.0, 3.0, 1.0])] * 2
    estimate = effect(shared(own, base), TIME)
    assert estimate is not None
    assert estimate.value == pytest.approx(0.5)
    assert between(shared(own, base), TIME) == (pytest.approx(1 / 3), pytest.approx(1.0))


def test_one_launch_has_a_value_and_no_interval() -> None:
    found = shared([curve([0.0, 100.0], [3.0, 1.0])], [curve([0.0, 10.0, 1000.0], [3.0, 2.0, 1.0])])
    estimate = effect(found, LOSS)
    assert estimate is not None
    assert (estimate.value, estimate.low, estimate.high) == (pytest.approx(-0.5), None, None)
    assert between(found, LOSS) is None


def test_before_the_first_evaluation_there_is_an_interval_and_no_value() -> None:
    own = [curve([0.0, 5.0], [3.0, loss]) for loss in (1.0, 1.0)]
    base = [curve([0.0, 10.0, 1000.0], [3.0, 2.0, 1.0])] * 2
    found = shared(own, base)
    assert effect(found, LOSS) is None
    assert between(found, LOSS) == (1.0 - 3.0, 1.0 - 2.0)


def test_launches_that_have_a_value_are_not_chosen_among_those_that_have_none() -> None:
    own = [curve([0.0, 5.0], [3.0, 1.0]), curve([0.0, 50.0], [3.0, 1.0])]
    base = [curve([0.0, 10.0, 1000.0], [3.0, 2.0, 1.0])] * 2
    assert effect(shared(own, base), LOSS) is None


@pytest.mark.parametrize(
    ("own", "base"),
    [
        (curve([0.0, 0.0], [3.0, 1.0]), curve([0.0, 10.0], [3.0, 1.0])),  # it sends nothing
        (curve([5.0, 8.0], [3.0, 1.0]), curve([10.0, 20.0], [3.0, 1.0])),  # it ends before the other begins
        (curve([0.0, 9.0, 8.0], [3.0, 2.0, 1.0]), curve([0.0, 10.0], [3.0, 1.0])),
        ({"excess_loss": [3.0, 1.0]}, curve([0.0, 10.0], [3.0, 1.0])),
        (curve([0.0, 10.0], [3.0, 1.0]), {"bytes": [0.0, 10.0]}),
        (curve([], []), curve([0.0, 10.0], [3.0, 1.0])),
    ],
)
def test_curves_that_share_no_budget_are_not_compared(own: Columns, base: Columns) -> None:
    assert shared([own], [base]).budgets == {}


def test_only_launches_of_both_are_read() -> None:
    one = curve([0.0, 10.0], [3.0, 1.0])
    found = at_equal({0: one, 1: one}, {1: one, 2: one}, "excess_loss", "bytes")
    assert set(found.budgets) == {1}


def test_a_technique_that_sends_nothing_says_so_in_its_row() -> None:
    alone = {**CURVES["diloco"], "bytes": [0.0] * 4}
    (point,) = points_of(training_record({BASELINE: CURVES[BASELINE], "alone": alone}))
    (grid,) = [g for g in equal_grids(point) if g.title == "excess_loss at equal bytes"]
    ((row,),) = grid.groups
    assert row[-1].text == "absent: in no launch do alone and ddp-ring both spend bytes"
    assert [cell.text for cell in row[1:6]] == ["–"] * 5


def test_where_the_baseline_was_not_evaluated_early_enough_its_row_says_between_what_it_lies() -> None:
    early = {**CURVES["diloco"], "bytes": [0.0, 1.0, 2.0, 500.0]}
    (point,) = points_of(training_record({BASELINE: CURVES[BASELINE], "diloco": early}))
    (grid,) = [g for g in equal_grids(point) if g.title == "excess_loss at equal bytes"]
    ((row,),) = grid.groups
    _, budget, own, base, found, whole, count, remark = (cell.text for cell in row)
    assert (budget, base, found, whole, count) == ("500 B", "1 nat … 1.4 nat", "–", "[-1.1, -0.7]", "3")
    assert own == "0.29–0.31 nat (range of 3)"
    assert remark == "where diloco ends; ddp-ring was not evaluated between its start and there"


def test_a_point_on_which_one_technique_alone_has_a_curve_has_no_such_tables() -> None:
    (point,) = points_of(training_record({BASELINE: CURVES[BASELINE]}))
    assert equal_grids(point) == []


def test_an_axis_that_no_technique_knows_has_no_table() -> None:
    blind = {label: {k: v for k, v in c.items() if k != "bytes"} for label, c in CURVES.items()}
    (point,) = points_of(training_record(blind))
    titles = [grid.title for grid in equal_grids(point)]
    assert titles == ["excess_loss at equal tokens", "excess_loss at equal seconds"]


def test_bytes_that_nobody_sees_of_the_baseline_are_said_to_be_absent_once() -> None:
    blind = {k: v for k, v in CURVES[BASELINE].items() if k != "bytes"}
    (point,) = points_of(training_record({**CURVES, BASELINE: blind}))
    (grid,) = [g for g in equal_grids(point) if g.title == "excess_loss at equal bytes"]
    ((row,),) = grid.groups
    assert [cell.text for cell in row] == [
        BASELINE,
        *["–"] * 5,
        "0",
        "absent: the baseline's bytes are not known",
    ]


def test_the_interval_of_any_curve_holds_that_of_the_line() -> None:
    # budgets differ from launch to launch, and with them how far along the line they lie: 1.0 + 0, 1.5, 1.9
    own = [curve([0.0, spent], [3.0, 1.0]) for spent in (999.0, 100.0, 11.0)]
    found = shared(own, [curve([0.0, 10.0, 1000.0], [3.0, 2.0, 1.0])] * 3)
    line, whole = effect(found, LOSS), between(found, LOSS)
    assert line is not None and whole is not None
    assert line.low is not None and line.high is not None
    assert (whole[0], whole[1]) == (line.low, line.high), "the ends alone have no spread: [-1, 0]"
    assert line.low < -1.0 < 0.0 < line.high
