"""What is shown of an estimate: nothing beside one launch, a range of few, intervals inside the metric's range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import record_factory as factory
from hypothesis import given
from hypothesis import strategies as st

from paceline.analysis.compare import compare_points
from paceline.analysis.points import points_of
from paceline.base.families.contracts import contract_id
from paceline.base.families.family import ANY, NOT_NEGATIVE, SHARE, bounds_of_unit, family_names, load_family
from paceline.report.tables.results import board_table
from paceline.report.words.estimates import FEW_NOTE, band, format_effect, format_estimate, verdict_text
from paceline.stats.estimates import Estimate, Launches, compare_difference, compare_ratio, estimate_value
from paceline.stats.unpaired import compare_unpaired
from paceline.stats.verdicts import Kind, Verdict, judge

T = "t on launch statistics"


def of(*values: float, **options: Any) -> Estimate:
    return estimate_value(Launches(values=dict(enumerate(values))), **options)


def ratio(tops: tuple[float, ...], bottoms: tuple[float, ...]) -> Estimate:
    sides = (Launches(values=dict(enumerate(side))) for side in (tops, bottoms))
    return compare_ratio(*sides)


def ends(value: float, low: float, high: float, launches: int = 5, method: str = T) -> Estimate:
    return Estimate(value=value, low=low, high=high, method=method, num_launches=launches)


@dataclass(frozen=True)
class Judged:
    effect: Estimate
    verdict: Verdict
    unit: str = "s"
    kind: Kind = "ratio"


def verdict_of(effect: Estimate, *, wide: bool = False, unit: str = "s") -> str:
    verdict = judge(effect, margin=0.02, better="lower")
    return verdict_text(Judged(effect=effect, verdict=verdict, unit=unit), wide=wide)


def test_of_one_launch_the_value_is_shown_and_the_verdict_says_so() -> None:
    assert format_estimate(of(0.00123), "s") == "1.23 ms"
    one = ratio((2.0,), (1.0,))
    assert format_effect(one, "ratio") == "2 ×"
    assert verdict_of(one) == "one launch"
    assert verdict_of(one, wide=True) == "one launch"


def test_a_count_that_is_exact_in_one_launch_keeps_its_verdict() -> None:
    """Several samples of one launch that are one number, as byte counts are, leave nothing to chance."""
    sides = (Launches(values={0: v}, samples={0: [v, v, v]}) for v in (512.0, 1024.0))
    effect = compare_ratio(*sides)
    assert (effect.method, verdict_of(effect, unit="B")) == ("constant", "better")


def test_one_launch_has_no_interval_of_its_answers_either() -> None:
    side = Launches(values={0: 0.75}, samples={0: [1.0, 1.0, 1.0, 0.0]})
    counted = estimate_value(side, scale="proportion")
    assert counted.low is not None
    assert format_estimate(counted, "ratio", SHARE) == "0.75"


def test_of_two_or_three_launches_the_range_is_shown_and_named() -> None:
    assert format_estimate(of(0.0012, 0.0014), "s") == "1.2–1.4 ms (range of 2)"
    assert format_estimate(of(0.0012, 0.0014, 0.0013), "s") == "1.2–1.4 ms (range of 3)"
    assert format_estimate(of(0.0009, 0.0011), "s") == "900 µs–1.1 ms (range of 2)"
    assert format_effect(ratio((0.8, 0.9), (1.0, 1.0)), "ratio") == "0.8–0.9 × (range of 2)"
    sides = (Launches(values=dict(enumerate(side))) for side in ((0.1, 0.2), (0.12, 0.1)))
    assert format_effect(compare_difference(*sides), "difference", SHARE) == "-0.02 to 0.1 (range of 2)"


def test_what_made_two_launches_absurd_is_gone() -> None:
    """The interval of two launches spans ten decades; a range that pretended to be it would be found here."""
    two = of(0.2, 0.75)
    assert two.high is not None
    assert two.low is not None
    assert two.high / two.low > 1e6
    assert format_estimate(two, "s") == "200–750 ms (range of 2)"


def test_two_runs_that_were_not_interleaved_show_the_range_of_all_pairs() -> None:
    left, right = (Launches(values=dict(enumerate(v))) for v in ((1.0, 2.0), (1.0, 4.0)))
    assert format_effect(compare_unpaired(left, right), "ratio") == "0.25–2 × (range of 2)"


def test_launches_that_agree_to_all_digits_shown_are_one_number() -> None:
    assert format_estimate(of(1.000001, 1.000002), "s") == "1 s (range of 2)"
    assert format_estimate(of(7.0, 7.0, 7.0), "B") == "7 B"


def test_shares_of_counted_answers_keep_their_interval_by_few_launches() -> None:
    side = Launches(values={0: 0.5, 1: 1.0}, samples={0: [1.0, 0.0], 1: [1.0, 1.0]})
    text = format_estimate(estimate_value(side, scale="proportion"), "ratio", SHARE)
    assert text == "0.75 [0.301, 0.954]"


def test_four_launches_have_an_interval() -> None:
    assert format_estimate(of(2.0, 2.02, 2.01, 2.01), "s") == "2.01 s ± 0.6 %"


@pytest.mark.parametrize(
    ("estimate", "unit", "bounds", "text"),
    [
        # a share beyond 1, beyond 0, and one that fills the whole range
        (ends(0.917, 0.8, 1.034), "ratio", SHARE, "0.917 [0.8, 1]"),
        (ends(0.02, -0.01, 0.05), "ratio", SHARE, "0.02 [0, 0.05]"),
        (ends(0.5, -0.3, 1.3), "ratio", SHARE, "0.5, undecided (5 launches)"),
        # of the issue: inside the range, and still more than a factor of ten
        (ends(0.917, 0.0696, 1.76), "ratio", SHARE, "0.917, undecided (5 launches)"),
        # without a range nothing is moved, and a value outside it shows that the range is wrong
        (ends(0.95, 0.89, 1.01), "ratio", ANY, "0.95 ± 6.3 %"),
        (ends(1.2, 1.1, 1.3), "ratio", SHARE, "1.2 ± 8.3 %"),
        # counts and bytes end at zero by their unit; times never get there
        (ends(3.0, -1.0, 7.0), "calls", None, "3 calls [0 calls, 7 calls]"),
        (ends(0.3, -0.1, 0.7), "s", None, "300 ms, undecided (5 launches)"),
        (ends(0.3, -0.1, 0.7), "s", ANY, "300 ms [-100 ms, 700 ms]"),
        # a factor of ten, and of eleven
        (ends(0.003, 0.001, 0.01), "s", None, "3 ms [1 ms, 10 ms]"),
        (ends(0.003, 0.001, 0.011), "s", None, "3 ms, undecided (5 launches)"),
        (ends(0.387, 7.62e-8, 546 * 3600), "s", None, "387 ms, undecided (5 launches)"),
        (ends(1.0, 1e-300, math.inf), "s", None, "1 s, undecided (5 launches)"),
        # Wilson's interval of a small share says something though its ends are far apart
        (ends(0.01, 0.0018, 0.054, method="Wilson"), "ratio", SHARE, "0.01 [0.0018, 0.054]"),
    ],
)
def test_ends_that_are_shown(
    estimate: Estimate, unit: str, bounds: tuple[float, float] | None, text: str
) -> None:
    assert format_estimate(estimate, unit, bounds) == text


@pytest.mark.parametrize(
    ("estimate", "kind", "verdict", "text"),
    [
        (ends(3.0, 1.0, 10.0), "ratio", "inconclusive", "3 × [1, 10]"),
        (ends(1.65, 0.00037, 7.36e3), "ratio", "inconclusive", "1.65 ×, undecided (5 launches)"),
        # the direction is known and the size is not: the row must not contradict itself
        (ends(0.0011, 2e-5, 0.057), "ratio", "faster", "0.0011 ×, size undecided (5 launches)"),
        (ends(0.02, 0.001, 0.04), "difference", "better", "0.02 [0.001, 0.04]"),
        (ends(0.5, -0.4, 1.4), "difference", "inconclusive", "0.5 [-0.4, 1]"),
        (ends(0.1, -1.5, 1.7), "difference", "inconclusive", "0.1, undecided (5 launches)"),
    ],
)
def test_effects_that_are_shown(estimate: Estimate, kind: str, verdict: str, text: str) -> None:
    assert format_effect(estimate, kind, SHARE, verdict=verdict) == text


def test_launches_that_a_verdict_lacks_are_told_only_when_asked_and_never_by_few() -> None:
    open_ = ratio((1.0, 1.3, 0.8, 1.1, 1.0), (1.0,) * 5)
    assert verdict_of(open_) == "inconclusive"
    assert verdict_of(open_, wide=True).startswith("inconclusive (≈ ")
    few = ratio((1.0, 1.3, 0.8), (1.0,) * 3)
    assert judge(few, margin=0.02, better="lower").launches_needed is not None
    assert verdict_of(few, wide=True) == "inconclusive"


def test_a_decision_by_few_launches_is_the_one_that_student_s_t_makes() -> None:
    """Texts changed, decisions did not: three launches that agree decide, three that do not stay open."""
    assert verdict_of(ratio((0.5, 0.501, 0.502), (1.0, 1.0, 1.0))) == "faster"
    assert verdict_of(ratio((0.5, 0.9, 0.6), (1.0, 1.0, 1.0))) == "inconclusive"


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=9),
    st.sampled_from(["linear", "log"]),
)
def test_no_share_is_shown_beyond_its_range(values: list[float], scale: Any) -> None:
    text = format_estimate(of(*values, scale=scale), "ratio", SHARE)
    assert "±" not in text or "[" not in text
    for number in text.replace("(range of", "").partition("[")[2].strip("]").split(", "):
        assert not number or 0 <= float(number) <= 1


@pytest.mark.parametrize("family", sorted(family_names()))
def test_every_metric_knows_its_range(family: str) -> None:
    """Neither a unit such as ``ratio`` nor a comparison by difference tells a range: then it must be declared."""
    silent = [
        m.name
        for m in load_family(family).metrics
        if m.bounds is None
        and not m.proportion
        and m.compared_by == "difference"
        and bounds_of_unit(m.unit) == ANY
    ]
    assert not silent or load_family(family).internal
    for metric in load_family(family).metrics:
        low, high = metric.range_of_values
        assert low < high


def test_what_is_a_share_and_what_is_not() -> None:
    metric = load_family("reasoning").metric
    assert metric("accuracy").range_of_values == SHARE
    assert metric("gain_at_equal_tokens").range_of_values == (-1.0, 1.0)
    assert load_family("collectives").metric("exposed_s").range_of_values == ANY
    assert load_family("collectives").metric("latency").range_of_values == NOT_NEGATIVE
    assert load_family("serving").metric("slo_attainment").range_of_values == SHARE
    assert load_family("serving").metric("makespan_error").range_of_values == NOT_NEGATIVE


def test_a_range_is_no_part_of_a_contract() -> None:
    """Series keep their key: a metric that learns its range is measured as before."""
    metric = load_family("collectives").metric("relative_l2_error")
    assert metric.bounds == NOT_NEGATIVE
    plain = type(metric)(
        **{k: getattr(metric, k) for k in type(metric).__dataclass_fields__ if k != "bounds"}
    )
    assert contract_id("collectives", plain) == contract_id("collectives", metric)


@pytest.mark.parametrize(("launches", "part"), [(1, "one launch"), (3, "(range of 3)")])
def test_a_board_says_how_few_launches_it_has(launches: int, part: str) -> None:
    run = factory.make_run()
    lines = [
        factory.measurement(run, label, launch, [seconds * (1 + (launch * n) / 50)])
        for launch in range(launches)
        for n, (label, seconds) in enumerate((("native", 1e-3), ("ring", 2e-3)), 1)
    ]
    points = points_of(factory.in_memory(run, lines))
    text = board_table(points, compare_points(points)).render()
    assert part in text
    assert (FEW_NOTE in text.replace("\n  ", "")) == (launches == 3)
    assert "[" not in text.partition("---")[2]


def test_a_chart_draws_the_ends_that_are_written() -> None:
    assert band(ends(0.9, 0.7, 1.1), SHARE) == (0.9, 0.7, 1.0)
    assert band(ends(0.3, -0.1, 0.7)) == (0.3, None, None)
    assert band(ends(0.387, 7.62e-8, 546 * 3600)) == (0.387, None, None)
    assert band(of(0.5, 1.0))[1:] == (0.5, 1.0)
    assert band(of(0.5)) == (0.5, None, None)
    assert band(of(0.5, 0.5)) == (0.5, 0.5, 0.5)
