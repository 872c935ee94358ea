"""Where learning is measured and not required, a run that learns nothing has losses and bytes, and no time."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import record_of_text

from paceline.records.store.folder import RunRecord
from paceline.workflows.conformance import ConformanceResult, results_of

MUTANTS = [
    Path(__file__).parents[1] / "mutants" / "training" / f"{name}.py"
    for name in ("learns_nothing", "explodes_late")
]
SUITE = """
suite: training/learning
version: 1
family: training
description: A part without which nothing is learnt.
workload: {op: data_parallel, size: nano, batch: 12, context: 16, learning_rate: 0.01, require_convergence: false}
baseline: ddp-ring
techniques: [ddp-ring, learns-nothing, explodes-late]
matrix: {ranks: [2], steps: [60], warmup_steps: [4], window: [10], evaluations: [6], eval_batch: [64]}
protocol: {launches: 1}
"""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return record_of_text(SUITE, tmp_path_factory.mktemp("learning"), extra=MUTANTS)


@pytest.fixture(scope="module")
def found(record: RunRecord) -> dict[str, ConformanceResult]:
    return {r.technique: r for r in results_of(record, "training")}


def test_a_run_that_learns_nothing_has_losses_and_bytes(found: dict[str, ConformanceResult]) -> None:
    result = found["learns-nothing"]
    assert result.status == "ok", result.reason
    assert result.measured["eval_loss"] > found["ddp-ring"].measured["eval_loss"]
    assert {"train_loss", "wire_bytes", "state_bytes"} <= set(result.measured)


def test_and_nothing_that_tells_of_time(found: dict[str, ConformanceResult]) -> None:
    timed = {"time_per_token", "compute_s", "communicate_s", "comm_time_fraction"}
    assert timed <= set(found["ddp-ring"].measured)
    assert not timed & set(found["learns-nothing"].measured)


def test_losses_that_are_not_finite_are_incorrect_all_the_same(found: dict[str, ConformanceResult]) -> None:
    assert found["explodes-late"].status == "incorrect"


def test_the_record_says_that_the_loss_was_measured_and_what_else_was_checked(record: RunRecord) -> None:
    all_of_it = ((m.label, m.correctness or {}) for m in record.measurements)
    said = {label: found["oracle"] for label, found in all_of_it if "oracle" in found}
    measured = "held-out loss was measured, not required to fall"
    assert said["learns-nothing"] == f"{measured}; no step was held against anything"
    assert said["ddp-ring"] == f"{measured}; 6 steps, passes or states were held against the harness's own"
