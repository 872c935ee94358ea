"""Several instances of a block within a launch: who may have them, and one result of them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import record_factory
import suite_text

from paceline.base.errors import UserErrors
from paceline.spec import content
from paceline.spec.plans.plan import Plan, Selection, make_plan
from paceline.spec.profiles.profile import load_runner
from paceline.worker.ranks.instances import Part, joined, limits_of, merged
from paceline.worker.timing.interleaved import Series, summarise

FIVE = "protocol: {launches: 5}"


def planned(folder: Path, protocol: str, **selection: Any) -> Plan:
    suite = suite_text.load(folder, (FIVE, protocol))
    return make_plan([suite], load_runner(content.find_runner("local-cpu")), Selection(**selection))


def series(*samples: float, positions: list[int] | None = None) -> Series:
    return Series(
        label="ring",
        samples=list(samples),
        per_rank=[[s / 2, s] for s in samples],
        skew=[0.0 for _ in samples],
        warmup=[9.0],
        positions=positions or list(range(len(samples))),
    )


def part(item: Series, *, wire_bytes: float = 64.0, errors: list[float] | None = None, **more: Any) -> Part:
    metrics: dict[str, Any] = {"latency": summarise(item), "wire_bytes": {"samples": [wire_bytes]}}
    if errors is not None:
        metrics["bias"] = {"samples": errors}
    result = {
        "status": "ok",
        "metrics": metrics,
        "absent": {},
        "correctness": {"passed": True, "timed_calls_verified": 3, "max_relative_l2": 0.1, "input_seed": 7},
        "accounting": {"requested": 5, "ok": 5, "failed": 0, "dropped": 0},
        "harness": {"prepare_s": 0.5, "measure_s": 2.0, "timed_s": 1.0, "fixed_s": 0.25, "num_cases": 2},
        **more,
    }
    return Part(result=result, timed={"latency": item})


def test_a_plan_with_one_instance_says_nothing_of_it(tmp_path: Path) -> None:
    plain = planned(tmp_path, FIVE)
    assert planned(tmp_path, "protocol: {launches: 5, instances: 1}").data == plain.data
    assert all("instances" not in b["protocol"] for b in plain.blocks)


def test_a_plan_with_three_instances_takes_about_three_times_as_long(tmp_path: Path) -> None:
    one, three = planned(tmp_path, FIVE), planned(tmp_path, "protocol: {launches: 5, instances: 3}")
    assert {b["protocol"]["instances"] for b in three.blocks} == {3}
    assert 2 < three.data["estimate"]["likely_s"] / one.data["estimate"]["likely_s"] < 3


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (
            [("op: all_reduce", "op: churn, steps: 30"), (FIVE, "protocol: {launches: 5, instances: 2}")],
            "protocol.instances",
        ),
        (
            [("op: all_reduce", "op: churn, steps: 30"), ("{launches: 2}", "{launches: 2, instances: 2}")],
            "tiers.quick.protocol.instances",
        ),
    ],
)
def test_what_lives_as_long_as_its_launch_has_one_instance(
    tmp_path: Path, change: list[tuple[str, str]], where: str
) -> None:
    with pytest.raises(UserErrors) as found:
        suite_text.load(tmp_path, *change)
    (said,) = [str(e) for e in found.value.errors if "anew" in str(e)]
    assert "example.yaml:" in said
    assert where in said
    assert "cannot make churn anew" in said


def test_a_family_whose_device_is_simulated_has_one_instance(tmp_path: Path) -> None:
    text = content.find_suite("calibration/same-work").read_text()
    path = tmp_path / "same.yaml"
    path.write_text(text.replace("{launches: 5,", "{launches: 5, instances: 2,"))
    with pytest.raises(UserErrors, match="cannot make work anew"):
        suite_text.load_suite(path)


def test_one_part_is_the_result_itself() -> None:
    only = part(series(1.0, 2.0))
    assert merged([only]) is only.result


def test_samples_follow_each_other_and_say_whose_they_are() -> None:
    parts = [
        part(series(1.0, 2.0, 3.0), errors=[0.1, 0.2, 0.3]),
        part(series(4.0, 5.0), errors=[0.4, 0.5], harness=dict.fromkeys(("prepare_s", "measure_s"), 1.0)),
    ]
    parts[1].result["harness"] |= {"timed_s": 0.5, "fixed_s": 0.5, "num_cases": 2}
    parts[1].result["correctness"] = {
        **parts[0].result["correctness"],
        "max_relative_l2": 0.4,
        "input_seed": 8,
    }
    whole = merged(parts)
    latency = whole["metrics"]["latency"]
    assert latency["samples"] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert latency["instances"] == [3, 2]
    assert latency["warmup"] == [9.0, 9.0]
    assert latency["cross_rank"]["median_of_rank_max"] == 3.0
    assert whole["metrics"]["bias"] == {"samples": [0.1, 0.2, 0.3, 0.4, 0.5], "instances": [3, 2]}
    assert whole["metrics"]["wire_bytes"] == {"samples": [64.0]}
    assert whole["accounting"] == {"requested": 10, "ok": 10, "failed": 0, "dropped": 0}
    assert whole["harness"]["measure_s"] == 3.0
    assert whole["harness"]["num_cases"] == 2
    assert whole["harness"]["instances"] == [
        {"prepare_s": 0.5, "measure_s": 2.0},
        {"prepare_s": 1.0, "measure_s": 1.0},
    ]
    assert whole["correctness"]["timed_calls_verified"] == 6
    assert whole["correctness"]["max_relative_l2"] == 0.4
    assert whole["correctness"]["input_seeds"] == [7, 8]


def test_counts_that_differ_are_all_kept() -> None:
    whole = merged([part(series(1.0)), part(series(2.0), wire_bytes=65.0)])
    assert whole["metrics"]["wire_bytes"] == {"samples": [64.0, 65.0], "instances": [1, 1]}


def test_what_one_instance_lacks_is_absent_with_its_reason() -> None:
    lacking = part(series(2.0), absent={"bias": "too few calls"})
    whole = merged([part(series(1.0), errors=[0.1]), lacking])
    assert "bias" not in whole["metrics"]
    assert whole["absent"] == {"bias": "too few calls"}


def test_the_last_call_of_an_instance_is_not_right_before_the_next_ones_first() -> None:
    whole = joined([series(1.0, 2.0, positions=[0, 3]), series(3.0, 4.0, positions=[0, 3])])
    assert whole.positions == [0, 3, 5, 8]


def test_later_instances_make_as_many_rounds_as_the_first() -> None:
    protocol = {
        "order": "abba",
        "ci_target": 0.02,
        "max_seconds": 2.0,
        "min_samples": 10,
        "max_samples": 2000,
        "warmup": "settle",
        "warmup_seconds": 1.0,
    }
    assert limits_of(protocol, None).max_samples == 2000
    later = limits_of(protocol, 7)
    assert (later.min_samples, later.max_samples, later.max_seconds) == (7, 7, 4.0)


def test_a_record_says_of_every_sample_whose_it_is_or_is_refused() -> None:
    run = record_factory.make_run()
    fitting = record_factory.measurement(run, "ring", 0, [1.0, 2.0, 3.0], instances=[2, 1])
    assert fitting.instances == [2, 1]
    with pytest.raises(ValueError, match="the instances have 4 samples, but there are 3"):
        record_factory.measurement(run, "ring", 0, [1.0, 2.0, 3.0], instances=[2, 2])
