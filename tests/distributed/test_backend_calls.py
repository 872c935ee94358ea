"""Calls of a backend's own collectives and what they are handed are counted, also where a library makes them."""

from __future__ import annotations

import pytest
from measured import record_of_text

from paceline.families.training.api.sizes import SIZES
from paceline.workflows.conformance import ConformanceResult, points_of, results_of

TENSORS = 14
"""Of parameters, in size nano: six in each of two layers, the embedding, and the gain of the last norm."""
UNITS = 3
"""What is sharded by itself: two layers, and the rest."""
GRADIENTS = 4 * SIZES["nano"].parameters(64)
RANKS = 2


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConformanceResult]:
    point = points_of("training", "data_parallel")[0] | {"steps": 40, "proof": "brief"}
    workload = {"op": "data_parallel", "ranks": RANKS} | point
    text = (
        "suite: training/handed-over\nversion: 1\nfamily: training\ndescription: What backends are handed is counted.\n"
        f"workload: {{{', '.join(f'{key}: {value}' for key, value in workload.items())}}}\n"
        "baseline: ddp\n"
        "techniques: [ddp, ddp-naive, ddp-ring, fsdp, {technique: fsdp, as: kept, options: {reshard: false}}]\n"
        "protocol: {launches: 1}\n"
    )
    record = record_of_text(text, tmp_path_factory.mktemp("calls"))
    return {r.technique: r for r in results_of(record, "training")}


def test_closed_forms_hold(found: dict[str, ConformanceResult]) -> None:
    assert [r.problem for r in found.values() if r.problem] == []
    assert {name for name, r in found.items() if "backend_bytes" in r.predicted} == set(found) - {"ddp-ring"}


def test_one_call_a_tensor_or_one_for_the_only_bucket(found: dict[str, ConformanceResult]) -> None:
    assert found["ddp-naive"].measured["backend_calls"] == TENSORS
    assert found["ddp"].measured["backend_calls"] == 1


def test_both_hand_all_gradients_over(found: dict[str, ConformanceResult]) -> None:
    assert found["ddp"].measured["backend_bytes"] == found["ddp-naive"].measured["backend_bytes"] == GRADIENTS


@pytest.mark.parametrize(("label", "gathers"), [("fsdp", 2), ("kept", 1)])
def test_a_library_that_shards_hands_over_shares_and_whole_gradients(
    label: str, gathers: int, found: dict[str, ConformanceResult]
) -> None:
    measured = found[label].measured
    assert measured["backend_calls"] == UNITS * (gathers + 1)
    assert measured["backend_bytes"] == GRADIENTS * (gathers / RANKS + 1)
    assert "wire_bytes" not in measured


def test_messages_of_our_own_are_no_calls(found: dict[str, ConformanceResult]) -> None:
    measured = found["ddp-ring"].measured
    assert measured["backend_calls"] == measured["backend_bytes"] == 0
    assert measured["bisection_bytes"] == RANKS * measured["wire_bytes"]
    assert "bisection_bytes" not in found["ddp"].measured
