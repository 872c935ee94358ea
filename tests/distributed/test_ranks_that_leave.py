"""A rank leaves training and comes back; the others go on, and it catches up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from measured import record_of_text

from paceline.testing import ConformanceResult, results_of

MUTANTS = sorted((Path(__file__).parents[1] / "mutants" / "absence").glob("*.py"))
ENDS = {
    "edit": ("unsupported", r"its ranks cannot leave or join"),
    "comes-back-stale": ("incorrect", r"ranks hold different weights after step (50|60)"),
    "welcomes-for-free": ("incorrect", r"wire_bytes is .*, formula"),
}
SUITE = """
suite: training/absence
version: 1
family: training
why: Ranks come and go.
workload: {op: data_parallel, size: nano, batch: 12, context: 16, learning_rate: 0.01, warmup_steps: 4, away: last-rank}
baseline: ddp-ring
techniques: [ddp-ring, local-sgd, diloco, noloco, edit, comes-back-stale, welcomes-for-free]
matrix: {ranks: [3], steps: [60], window: [10], evaluations: [6], eval_batch: [64]}
protocol: {launches: 1}
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ConformanceResult]:
    record = record_of_text(SUITE, tmp_path_factory.mktemp("absence"), extra=MUTANTS)
    return {r.technique: r for r in results_of(record, "training")}


@pytest.mark.parametrize("technique", ["ddp-ring", "local-sgd", "diloco", "noloco"])
def test_elastic_techniques_go_on_and_send_what_their_formula_says(
    technique: str, found: dict[str, ConformanceResult]
) -> None:
    result = found[technique]
    assert result.status == "ok", result.reason
    assert result.problem is None
    assert {"wire_bytes", "messages"} <= set(result.predicted)


@pytest.mark.parametrize("technique", ["ddp-ring", "local-sgd", "diloco"])
def test_who_is_brought_up_to_date_has_caught_up_after_one_step(
    technique: str, found: dict[str, ConformanceResult]
) -> None:
    assert found[technique].measured["recovery_steps"] == 1


@pytest.mark.parametrize("technique", sorted(ENDS))
def test_techniques_that_cannot_or_do_it_wrongly_say_so_or_are_refused(
    technique: str, found: dict[str, ConformanceResult]
) -> None:
    status, reason = ENDS[technique]
    assert found[technique].status == status, found[technique].reason
    assert re.search(reason, found[technique].reason or ""), found[technique].reason
