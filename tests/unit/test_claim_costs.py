"""What a claim's technique is worse in: told beside the claim, at its own points, by the margins of its suite."""

from __future__ import annotations

from typing import Any

import pytest
import record_factory as factory

from paceline.analysis.claims.costs import speaks_for_other
from paceline.analysis.claims.points import Sides
from paceline.analysis.claims.results import ClaimResult, evaluate
from paceline.base.families.family import load_family
from paceline.records.store.folder import RunRecord
from paceline.report.claims.text import costs_text, found_at_a_cost
from paceline.workflows.claiming import claim_facts

WOBBLE = [1.0, 1.004, 0.996, 1.002, 0.998]
MARGINS = {"latency": 0.05, "wire_bytes": 0.0, "relative_l2_error": 0.0}


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "suite": "collectives/example",
        "version": 1,
        "family": "collectives",
        "baseline": "native",
        "metrics": MARGINS,
        "claims": [
            {
                "id": "fewer-bytes",
                "paper": "pccl",
                "quote": "half of the bytes",
                "scope": "qualitative",
                "measure": {"metric": "wire_bytes", "technique": "ring", "versus": "native"},
                "expect": {"ratio_at_most": 0.6},
            }
        ],
        **changes,
    }


def record(times: dict[int, float], errors: dict[str, float] | None = None, **changes: Any) -> RunRecord:
    """Return a run in which ring sends half of native's bytes and takes that multiple of its time, by size."""
    run = factory.make_run(suites=[facts(**changes)])
    lines = []
    for size, ratio in times.items():
        point: dict[str, Any] = {"params": {"size_bytes": size}}
        for label, time, sent in (("native", 1.0, 8.0), ("ring", ratio, 4.0)):
            lines += factory.launches(run, label, [time * w for w in WOBBLE], **point)
            lines += factory.launches(run, label, [sent] * len(WOBBLE), metric="wire_bytes", **point)
            if errors:
                own = [errors[label] * w for w in WOBBLE]
                lines += factory.launches(run, label, own, metric="relative_l2_error", **point)
    return factory.in_memory(run, lines)


def result(found: RunRecord, claim: dict[str, Any] | None = None) -> ClaimResult:
    suite = found.run.suites[0]
    own = {**suite, "claims": [{**suite["claims"][0], **(claim or {})}]}
    (evaluated,) = evaluate([found], [own])
    return evaluated


def test_a_gain_in_bytes_is_told_with_the_time_that_it_costs() -> None:
    claim = result(record({1024: 1.5}))
    (cost,) = claim.costs
    assert (cost.metric, cost.num_points, cost.of_points) == ("latency", 1, 1)
    assert cost.effect.value == pytest.approx(1.5, rel=0.01)
    assert costs_text(claim).startswith("at the cost of: latency 1.5 × [1.")
    assert found_at_a_cost(claim, "ranks 2") == f"0.5 × (ranks 2); {costs_text(claim)}"
    (told,) = claim_facts(claim)["costs"]
    assert (told["metric"], told["points"], told["params"]["size_bytes"]) == ("latency", [1, 1], 1024)


@pytest.mark.parametrize("ratio", [0.7, 1.0, 1.03], ids=["a gain, too", "no change", "within the margin"])
def test_what_is_not_decided_against_it_is_no_cost(ratio: float) -> None:
    claim = result(record({1024: ratio}))
    assert claim.costs == () and costs_text(claim) == ""
    assert found_at_a_cost(claim) == "0.5 ×"


def test_the_worst_point_is_told_and_at_how_many_it_is_worse() -> None:
    claim = result(record({1024: 1.5, 65536: 0.9, 262144: 1.9}))
    (cost,) = claim.costs
    assert cost.params["size_bytes"] == 262144
    assert costs_text(claim).endswith(" at 2 of 3 points")


def test_points_that_the_claim_is_not_about_cost_it_nothing() -> None:
    found = record({1024: 0.9, 65536: 1.5})
    where = {"metric": "wire_bytes", "technique": "ring", "versus": "native", "where": {"size_bytes": 1024}}
    assert result(found, {"measure": where}).costs == ()
    where["where"] = {"size_bytes": 65536}
    assert [c.metric for c in result(found, {"measure": where}).costs] == ["latency"]


def test_a_quality_that_is_lost_is_a_cost_unless_the_suite_does_not_ask_after_it() -> None:
    errors = {"native": 1e-7, "ring": 0.2}
    claim = result(record({1024: 1.0}, errors))
    assert [(c.metric, c.kind) for c in claim.costs] == [("relative_l2_error", "difference")]
    assert costs_text(claim).startswith("at the cost of: relative error 0.2 [0.")
    assert result(record({1024: 1.0}, errors, diagnostic=["relative_l2_error"])).costs == ()


def test_a_value_has_no_other_side_to_be_worse_than() -> None:
    found = record({1024: 1.5})
    assert result(found, {"expect": {"value_at_most": 5.0}}).costs == ()
    alone = {"metric": "wire_bytes", "technique": "ring"}
    assert result(found, {"measure": alone, "expect": {"value_at_most": 5.0}}).costs == ()


SPEAKS_FOR_RING = [
    ("native", "ring", {"ratio_at_least": 1.5}),
    ("ring", "native", {"ratio_at_most": 0.6}),
]


@pytest.mark.parametrize(
    ("technique", "versus", "expect"), SPEAKS_FOR_RING, ids=["as the other side", "itself"]
)
def test_who_gains_is_who_pays_on_whichever_side_of_the_claim_it_stands(
    technique: str, versus: str, expect: dict[str, float]
) -> None:
    measure = {"metric": "wire_bytes", "technique": technique, "versus": versus}
    claim = result(record({1024: 1.5}), {"measure": measure, "expect": expect})
    (cost,) = claim.costs
    assert (cost.payer, cost.metric) == ("ring", "latency")
    assert cost.effect.value == pytest.approx(1.5, rel=0.01)
    assert claim_facts(claim)["costs"][0]["technique"] == "ring"


def test_a_cost_of_the_claims_other_side_is_told_by_its_name() -> None:
    measure = {"metric": "wire_bytes", "technique": "native", "versus": "ring"}
    claim = result(record({1024: 1.5}), {"measure": measure, "expect": {"ratio_at_least": 1.5}})
    assert costs_text(claim).startswith("at the cost, to ring, of: latency 1.5 ×")


def test_what_the_opponent_is_worse_in_is_no_cost_of_who_beats_it() -> None:
    measure = {"metric": "wire_bytes", "technique": "native", "versus": "ring"}
    claim = result(record({1024: 0.7}), {"measure": measure, "expect": {"ratio_at_least": 1.5}})
    assert claim.costs == ()


@pytest.mark.parametrize(
    ("metric", "expect", "other"),
    [
        ("latency", {"ratio_at_least": 1.1}, True),
        ("latency", {"ratio_at_most": 0.9}, False),
        ("latency", {"ratio_at_least": 0.4, "ratio_at_most": 0.6}, False),
        ("latency", {"equal_within": 0.05}, False),
        ("survived", {"ratio_at_least": 1.1}, False),
        ("survived", {"ratio_at_most": 1.0}, True),
        ("survived", {"difference_at_most": 0.0}, True),
    ],
)
def test_for_whom_a_claim_speaks_follows_from_what_it_expects(
    metric: str, expect: dict[str, float], other: bool
) -> None:
    measure = {"metric": metric, "technique": "ring", "versus": "native"}
    sides = Sides.of({"measure": measure, "expect": expect})
    assert speaks_for_other(sides, expect, load_family("collectives")) is other
