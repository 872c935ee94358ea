"""Where learning is measured and not required, a run that learns nothing has losses and bytes, and no time."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import record_of_text

from paceline.testing import ConformanceResult, results_of

MUTANTS = [
    Path(__file__).parents[1] / "mutants" / "training" / f"{name}.py"
    for name in ("learns_nothing", "explodes_late")
]
SUITE = """
suite: training/learning
version: 1
family: training
why: A part without which nothing is learnt.
workload: {op: data_parallel, size: nano, batch: 12, context: 16, learning_rate: 0.01, learning: measured}
baseline: ddp-ring
techniques: [ddp-ring, learns-nothing, explodes-late]
matrix: {ranks: [2], steps: [60], warmup_steps: [4], window: [10], evaluations: [6], eval_batch: [64]}
protocol: {launches: 1}
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConformanceResult]:
    record = record_of_text(SUITE, tmp_path_factory.mktemp("learning"), extra=MUTANTS)
    return {r.technique: r for r in results_of(record, "training")}


def test_a_run_that_learns_nothing_has_losses_and_bytes(found: dict[str, ConformanceResult]) -> None:
    result = found["learns-nothing"]
    assert result.status == "ok", result.reason
    assert result.measured["eval_loss"] > found["ddp-ring"].measured["eval_loss"]
    assert {"train_loss", "wire_bytes", "state_bytes"} <= set(result.measured)


def test_and_nothing_that_tells_of_time(found: dict[str, ConformanceResult]) -> None:
    timed = {"token_s", "compute_s", "communicate_s", "idle_share"}
    assert timed <= set(found["ddp-ring"].measured)
    assert not timed & set(found["learns-nothing"].measured)


def test_losses_that_are_not_finite_are_incorrect_all_the_same(found: dict[str, ConformanceResult]) -> None:
    assert found["explodes-late"].status == "incorrect"
