"""A rank leaves training inside a round and comes back inside another; the others go on, and it catches up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from measured import record_of_text

from paceline.families.training.api.absence import Absence
from paceline.records.store.folder import RunRecord
from paceline.spec import content
from paceline.workflows.conformance import ConformanceResult, results_of

MUTANTS = sorted((Path(__file__).parents[1] / "mutants" / "absence").glob("*.py"))
ROUND, STEPS, AWAY = 20, 75, range(25, 50)
"""Steps of a round, of the run, and those without the last rank."""
SEED = 3
"""Data and partners are drawn. With 3 of 25 draws the first partner alone brings the rank back (seeds 7, 11, 18)."""
COPYING = ["ddp-ring", "diloco", "local-sgd"]
"""Techniques that bring a rank up to date at once."""
ELASTIC = [*COPYING, "noloco", "noloco-often"]
ENDS = {
    "edit": ("unsupported", r"its ranks cannot leave or join"),
    "comes-back-stale": ("incorrect", r"ranks hold different weights after step (62|75)"),
    "welcomes-for-free": ("incorrect", r"wire_bytes is .*, formula"),
}
SUITE = f"""
suite: training/absence
version: 1
family: training
description: Ranks come and go.
workload: {{op: data_parallel, size: nano, batch: 12, context: 16, learning_rate: 0.01, warmup_steps: 4}}
baseline: ddp-ring
techniques:
  - ddp-ring
  - local-sgd
  - diloco
  - noloco
  - {{technique: noloco, as: noloco-often, options: {{sync_every: 2}}}}
  - edit
  - comes-back-stale
  - welcomes-for-free
matrix: {{ranks: [3], steps: [{STEPS}], window: [10], evaluations: [6], eval_batch: [64], absent_rank: [last-rank]}}
protocol: {{launches: 1}}
"""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    return record_of_text(SUITE, tmp_path_factory.mktemp("absence"), extra=MUTANTS, seed=SEED)


@pytest.fixture(scope="module")
def found(record: RunRecord) -> dict[str, ConformanceResult]:
    return {r.technique: r for r in results_of(record, "training")}


def test_every_elastic_technique_is_measured() -> None:
    known = content.techniques("training")
    elastic = {name for name, source in known.items() if source.info.properties.get("elastic")}
    assert elastic == set(ELASTIC) - {"noloco-often"}


def test_the_rank_leaves_and_comes_back_inside_rounds() -> None:
    absence = Absence.of_last(3, STEPS)
    assert (absence.first, absence.last) == (AWAY.start, AWAY.stop)
    assert AWAY.start % ROUND and AWAY.stop % ROUND
    assert AWAY.start // ROUND < AWAY.stop // ROUND


@pytest.mark.parametrize("technique", ELASTIC)
def test_elastic_techniques_go_on_and_send_what_their_formula_says(
    technique: str, found: dict[str, ConformanceResult]
) -> None:
    result = found[technique]
    assert result.status == "ok", result.reason
    assert result.problem is None
    assert {"wire_bytes", "messages"} <= set(result.predicted)


@pytest.mark.parametrize("technique", COPYING)
def test_who_is_brought_up_to_date_has_caught_up_after_one_step(
    technique: str, found: dict[str, ConformanceResult]
) -> None:
    assert found[technique].measured["recovery_steps"] == 1


def test_who_is_pulled_along_by_partners_needs_more_steps_than_who_is_brought_up_to_date(
    found: dict[str, ConformanceResult],
) -> None:
    """Its own weights are 25 steps old, and a partner takes away half of what lies between the two."""
    assert 1 < found["noloco-often"].measured["recovery_steps"] <= STEPS - AWAY.stop


def test_a_figure_is_there_or_the_reason_why_there_is_none(
    record: RunRecord, found: dict[str, ConformanceResult]
) -> None:
    """Of the two rounds after its return a rank of three may sit out both."""
    absent = {m.label: m.absent or {} for m in reversed(record.measurements)}
    for technique in ELASTIC:
        why = absent[technique].get("recovery_steps")
        assert ("recovery_steps" in found[technique].measured) == (why is None), technique
        assert why in (None, "the rank that came back did not catch up")
    assert all(absent[technique].get("recovery_steps") is None for technique in (*COPYING, "noloco-often"))


@pytest.mark.parametrize("technique", sorted(ENDS))
def test_techniques_that_cannot_or_do_it_wrongly_say_so_or_are_refused(
    technique: str, found: dict[str, ConformanceResult]
) -> None:
    status, reason = ENDS[technique]
    assert found[technique].status == status, found[technique].reason
    assert re.search(reason, found[technique].reason or ""), found[technique].reason
