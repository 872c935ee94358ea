"""Comparisons: within a run, between runs, and the ones that must not be made."""

from __future__ import annotations

import math
from typing import Any

import pytest
import record_factory as factory

from paceline.analysis.compare import compare_points, confirm, ranks, suspicions
from paceline.analysis.points import Point, grade_of, points_of
from paceline.analysis.runs import compare_runs, incomparable
from paceline.base.families.family import load_family
from paceline.records.format.record import Run
from paceline.records.store.folder import RunRecord
from paceline.report.words.estimates import format_effect, format_estimate
from paceline.stats.estimates import Estimate, Launches, compare_ratio, estimate_value

FAST, SLOW = [1.00, 1.01, 0.99, 1.02, 1.00], [1.50, 1.52, 1.49, 1.51, 1.50]
NOISY = [1.4, 0.7, 1.1, 0.9, 1.2]


def record(sides: dict[str, list[float]], **changes: Any) -> RunRecord:
    run = factory.make_run(**changes)
    return factory.in_memory(run, [m for label, v in sides.items() for m in factory.launches(run, label, v)])


def verdicts(found: RunRecord, **options: Any) -> dict[str, str]:
    return {c.label: c.verdict.name for c in compare_points(points_of(found), **options)}


def test_each_technique_is_held_against_the_baseline_of_its_point() -> None:
    near = [v * 1.004 for v in FAST]
    found = record({"native": FAST, "ring": SLOW, "tree": [v / 2 for v in FAST], "star": NOISY, "twin": near})
    assert verdicts(found) == {
        "ring": "slower",
        "tree": "faster",
        "star": "inconclusive",
        "twin": "equivalent",
    }
    assert set(verdicts(found, margin=10.0).values()) == {"equivalent"}


def test_verdicts_carry_their_effect_grade_and_adjusted_p_value() -> None:
    (comparison,) = compare_points(points_of(record({"native": FAST, "ring": SLOW})))
    assert comparison.effect.value == pytest.approx(1.5, rel=0.01)
    assert (comparison.grade, comparison.margin, comparison.kind) == ("B", 0.02, "ratio")
    assert comparison.q_value == comparison.effect.p_value


def test_many_comparisons_raise_the_bar_for_each() -> None:
    weak = [1.02, 1.10, 1.04, 1.12, 1.05]
    alone = record({"native": [1.0] * 5, "ring": weak})
    assert verdicts(alone, margin=0.0) == {"ring": "slower"}
    crowd = record(
        {"native": [1.0] * 5, "ring": weak, **{f"t{i}": [*NOISY[i:], *NOISY[:i]] for i in range(5)}}
    )
    assert verdicts(crowd, margin=0.0)["ring"] == "inconclusive"


def test_failures_stand_beside_the_numbers_and_enter_none() -> None:
    run = factory.make_run()
    lines = factory.launches(run, "native", FAST) + [
        factory.measurement(run, "ring", i, []) for i in range(5)
    ]
    (point,) = points_of(factory.in_memory(run, lines))
    assert point.labels == ["native"]
    assert [m.status for m in point.failures["ring"]] == ["crashed"] * 5
    assert compare_points([point]) == []


def test_a_technique_that_was_wrong_once_has_no_number() -> None:
    run = factory.make_run()
    wrong = factory.measurement(run, "ring", 4, [], status="incorrect", reason="an element differs")
    lines = [*factory.launches(run, "native", FAST), *factory.launches(run, "ring", SLOW[:4]), wrong]
    (point,) = points_of(factory.in_memory(run, lines))
    assert point.labels == ["native"]
    assert point.failures["ring"][0].reason == "an element differs"


@pytest.mark.parametrize(
    "missed",
    [
        "missed: 0.7 nats above the entropy rate at the end",
        # as records of known objectives said it before they said that it was missed
        "the distance never came down to 1e-06; it ended at 0.0209",
    ],
)
def test_a_target_that_was_missed_in_one_launch_of_three_is_no_mean_of_the_other_two(missed: str) -> None:
    run = factory.make_run()
    told = {"latency": missed, "skew": "nobody looked"}
    lines = [*factory.launches(run, "native", FAST[:3]), *factory.launches(run, "ring", [0.2, 0.3])]
    lines += [
        factory.measurement(
            run, "ring", launch, [1.0], metric="wire_bytes", absent=told if launch == 2 else None
        )
        for launch in range(3)
    ]
    (point,) = points_of(factory.in_memory(run, lines))
    assert point.cells["ring", "latency"].missed == {2}
    assert format_estimate(point.estimate("ring", "latency"), "s") == "300 ms, missed in 1 of 3"
    effect = point.effect("ring", "native", "latency")
    assert format_effect(effect, "ratio") == "0.297 × (1 missed)"
    assert verdicts(factory.in_memory(run, lines), metrics=["latency"]) == {"ring": "inconclusive"}


def test_medians_of_ten_launches_with_a_miss_are_written_with_their_interval() -> None:
    side = Launches(values={n: float(n + 1) for n in range(9)}, missed=frozenset({9}))
    base = Launches(values=dict.fromkeys(range(10), 2.0))
    assert format_estimate(estimate_value(side), "s") == "5.5 s [2 s, 9 s], missed in 1 of 10"
    assert format_effect(compare_ratio(side, base), "ratio") == "2.75 × [1, 4.5] (1 missed)"


@pytest.mark.parametrize(("effect", "said"), [(-0.25, True), (-0.15, False), (0.5, False), (math.nan, False)])
def test_a_loss_that_is_lower_than_plausible_is_said_to_be(effect: float, said: bool) -> None:
    loss = load_family("training").metric("eval_loss")
    found = suspicions(Estimate(value=effect, low=None, high=None, method="one launch", num_launches=1), loss)
    assert bool(found) == said
    assert not suspicions(
        Estimate(value=0.01, low=None, high=None, method="one launch", num_launches=1),
        load_family("collectives").metric("latency"),
    )


def twice(first: float, second: float, **second_run: Any) -> list[Point]:
    runs = [{"native": FAST, "ring": [v * ratio for v in SLOW]} for ratio in (first, second)]
    points = [points_of(record(runs[0]))[0], points_of(record(runs[1], **second_run))[0]]
    confirm(points)
    return points


def test_two_runs_that_agree_confirm_each_other() -> None:
    points = twice(1.0, 1.005)
    assert {p.grade(name, "latency") for p in points for name in ("ring", "native")} == {"A"}


@pytest.mark.parametrize(
    ("ratio", "second_run"), [(1.3, {}), (1.0, {"code": {"commit": "c0ffee", "dirty": True}})]
)
def test_runs_that_disagree_or_are_weak_confirm_nothing(ratio: float, second_run: dict[str, Any]) -> None:
    assert twice(1.0, ratio, **second_run)[0].grade("ring", "latency") == "B"


def test_noise_confirms_nothing() -> None:
    points = [
        points_of(record({"native": FAST, "ring": [v * n for v, n in zip(SLOW, NOISY, strict=True)]}))[0]
        for _ in range(2)
    ]
    confirm(points)
    assert points[0].grade("ring", "latency") == "B"


def test_points_of_other_parameters_never_meet() -> None:
    run = factory.make_run()
    lines = factory.launches(run, "native", FAST) + factory.launches(
        run, "ring", SLOW, params={"size_bytes": 8}
    )
    points = points_of(factory.in_memory(run, lines))
    assert [p.params["size_bytes"] for p in points] == [8, 4096]
    assert compare_points(points) == []


def test_techniques_that_cannot_be_told_apart_share_ranks() -> None:
    (point,) = points_of(record({"native": FAST, "ring": SLOW, "twin": FAST, "tree": [v / 2 for v in FAST]}))
    assert ranks(point, "latency") == {"tree": (1, 1), "native": (2, 3), "twin": (2, 3), "ring": (4, 4)}


@pytest.mark.parametrize(
    ("changes", "launches", "confirmed", "grade"),
    [
        ({}, 5, False, "B"),
        ({}, 5, True, "A"),
        ({}, 4, True, "C"),
        ({"code": {"commit": "c0ffee", "dirty": True}}, 5, True, "C"),
        ({"code": {"commit": None, "reason": "a wheel"}}, 5, True, "C"),
        ({"imported_from": {"format": "csv"}}, 9, True, "D"),
    ],
)
def test_evidence_is_graded(changes: dict[str, Any], launches: int, confirmed: bool, grade: str) -> None:
    assert grade_of(factory.make_run(**changes), launches, confirmed) == grade


@pytest.mark.parametrize("flag", ["unchecked", "self-reported"])
def test_what_nothing_checked_is_exploratory_however_often_it_was_measured(flag: str) -> None:
    assert grade_of(factory.make_run(), 20, True, {"bimodal", flag}) == "C"
    assert grade_of(factory.make_run(), 20, True, {"bimodal"}) == "A"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"host_class": "Another CPU, 64 cores, 256 GiB"}, "host classes differ"),
        ({"container": {"image_class": "cuda-12"}}, "container image classes differ"),
        ({"code": {"commit": "other", "dirty": True}}, None),
        ({"runner": {"name": "netns-cpu"}}, None),
    ],
)
def test_hardware_and_image_make_runs_incomparable_and_code_does_not(
    changes: dict[str, Any], reason: str | None
) -> None:
    left: Run = factory.make_run()
    for pair in ((left, factory.make_run(**changes)), (factory.make_run(**changes), left)):
        found = incomparable(*pair)
        assert found is None if reason is None else reason in (found or "")


@pytest.mark.parametrize(
    ("ranks", "scheduling", "reason"),
    [
        (2, "batch", "ranks were scheduled differently"),
        (2, "normal", None),
        (2, None, None),
        (1, "batch", None),
    ],
    ids=["another policy", "the same", "a record of before", "single ranks"],
)
def test_groups_under_different_schedulers_are_not_compared(
    ranks: int, scheduling: str | None, reason: str | None
) -> None:
    plan = {"groups": [{"group": f"collectives-{ranks}-loopback", "ranks": ranks, "link": {}}]}
    told = {} if scheduling is None else {"scheduling": scheduling}
    left = factory.make_run(plan=plan, runner={"name": "local-cpu", "scheduling": "normal"})
    right = factory.make_run(plan=plan, runner={"name": "local-cpu", **told})
    for pair in ((left, right), (right, left)):
        found = incomparable(*pair)
        assert found is None if reason is None else reason in (found or "")


def test_runs_are_compared_series_by_series() -> None:
    before, after = record({"native": FAST, "ring": FAST}), record({"native": FAST, "ring": SLOW})
    found = {c.label: c for c in compare_runs(after, before, margin=0.05)}
    assert {label: c.verdict.name for label, c in found.items()} == {"native": "equivalent", "ring": "slower"}
    assert found["ring"].effect.value == pytest.approx(1.5, rel=0.01)
    assert "not interleaved" in found["ring"].effect.warnings[0]
    back = {c.label: c.verdict.name for c in compare_runs(before, after, margin=0.05)}
    assert back["ring"] == "faster"


def test_a_metric_compared_by_difference_is_compared_between_runs_too() -> None:
    def run(errors: list[float]) -> RunRecord:
        facts = factory.make_run().suites[0]
        made = factory.make_run(suites=[{**facts, "metrics": {"relative_l2_error": 0.001}}])
        return factory.in_memory(made, factory.launches(made, "ring", errors, metric="relative_l2_error"))

    before, after = run([0.010, 0.0101, 0.0099, 0.010]), run([0.020, 0.0201, 0.0199, 0.020])
    (worse,) = compare_runs(after, before)
    assert (worse.kind, worse.verdict.name) == ("difference", "slower")
    assert worse.effect.value == pytest.approx(0.01, rel=0.02)
    (same,) = compare_runs(before, before)
    assert same.verdict.name == "equivalent"


def test_series_of_another_contract_or_point_are_not_compared() -> None:
    left = record({"native": FAST})
    run = factory.make_run()
    other_contract = factory.in_memory(run, factory.launches(run, "native", SLOW, contract_id="other"))
    other_point = factory.in_memory(run, factory.launches(run, "native", SLOW, params={"ranks": 4}))
    assert compare_runs(left, other_contract) == compare_runs(left, other_point) == []
    assert len(compare_runs(left, record({"native": SLOW}))) == 1
