"""Runs of coded gradients: honest masters are measured, known-wrong ones refused, each for its own reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from measured import record_of

from paceline.records.store.folder import RunRecord
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import results_of

MUTANTS = Path(__file__).parents[1] / "mutants" / "coding"
WRONG = {
    "knows-who-is-slow": ("refused", r"imports paceline.families.training.ops.coded_gradients.straggling"),
    "tosses-a-coin": ("incorrect", "does not follow from what it was told"),
    "forgets-a-worker": ("incorrect", "is off the whole gradient by"),
    "uses-what-was-lost": ("refused", "which is not there"),
    "delivers-late": ("incorrect", "later than its delay of 0 allows"),
    "begins-ahead": ("refused", "job 1 begins where job 0 leaves its model"),
    "sums-another-job": ("incorrect", "is off the whole gradient by inf"),
    "leaves-data-out": ("refused", "its chunks are 0.9 of all data"),
    "never-delivers": ("incorrect", "12 jobs were never delivered"),
    "waits-for-the-past": ("refused", "would wait until 0 s"),
    "never-ends": ("refused", "it has begun 240 rounds for 12 jobs"),
    "sends-objects": ("refused", "not str"),
}
HONEST = ("gradient-coding", "m-sgc", "sr-sgc")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("coding")
    suite = folder / "coding.yaml"
    suite.write_text(
        "suite: training/coding\nversion: 1\nfamily: training\n"
        "description: Known-wrong techniques must be refused.\nprotocol: {launches: 1, timeout: 300s}\n"
        "workload: {op: coded_gradients, workers: 5, jobs: 12, model_dim: 3, data_samples: 20, slow_begin: 0.2}\n"
        f"baseline: gradient-coding\ntechniques: [{', '.join((*HONEST, *sorted(WRONG)))}]\n"
    )
    return record_of([load_suite(suite, extra=sorted(MUTANTS.glob("*.py")))], folder)


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_master_gets_no_number(name: str, record: RunRecord) -> None:
    status, reason = WRONG[name]
    (result,) = [r for r in results_of(record, "training") if r.technique == name]
    assert result.status == status, result.reason
    assert re.search(reason, result.reason or ""), result.reason


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_master_beside_it_is_measured(name: str, record: RunRecord) -> None:
    found = {m.metric.name: m for m in record.measurements if m.technique == name and m.metric is not None}
    assert set(found) == {"virtual_run_time", "worker_load", "full_wait_share", "recovery_error"}, {
        m.reason for m in record.measurements if m.technique == name
    }
    (value,) = found["virtual_run_time"].samples or ()
    assert value > 12
