"""Runs of influence: honest estimators are measured, known-wrong ones refused, each for its own reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from measured import record_of

from paceline.records.store.folder import RunRecord
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import results_of

MUTANTS = Path(__file__).parents[1] / "mutants" / "influence"
WRONG = {
    "knows-the-truth": ("refused", r"imports paceline.families.training.ops.influence.gossip"),
    "draws-without-a-seed": ("incorrect", "does not follow from what it was told"),
    "leaves-a-step-out": ("incorrect", "it states no influence of step"),
    "states-no-number": ("refused", "finite numbers"),
    "asks-of-nobody": ("refused", "there is no peer 5"),
    "looks-beyond-the-run": ("refused", "there is no peer 0 in step"),
    "states-a-step-twice": ("refused", "is stated already"),
    "sends-another-vector": ("refused", "a vector has 4 numbers"),
    "says-a-word": ("refused", "not str"),
    "forgets-the-graph": ("incorrect", "it is no derivative"),
    "turns-the-sign": ("incorrect", "off the influence by 2 of it"),
    "stops-a-hop-early": ("incorrect", "it is no derivative"),
}
HONEST = ("dice", "own-influence", "random-influence")


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("influence")
    suite = folder / "influence.yaml"
    suite.write_text(
        "suite: training/influence\nversion: 1\nfamily: training\n"
        "description: Known-wrong techniques must be refused.\nprotocol: {launches: 1, timeout: 300s}\n"
        "workload: {op: influence, peers: 5, features: 4, peer_samples: 20, peer_minibatch: 8, "
        "gossip_steps: 9, asked_steps: 3}\n"
        f"baseline: own-influence\ntechniques: [{', '.join((*HONEST, *sorted(WRONG)))}]\n"
    )
    return record_of([load_suite(suite, extra=sorted(MUTANTS.glob("*.py")))], folder)


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_estimator_gets_no_number(name: str, record: RunRecord) -> None:
    status, reason = WRONG[name]
    (result,) = [r for r in results_of(record, "training") if r.technique == name]
    assert result.status == status, result.reason
    assert re.search(reason, result.reason or ""), result.reason


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_estimator_beside_it_is_measured(name: str, record: RunRecord) -> None:
    found = {m.metric.name: m for m in record.measurements if m.technique == name and m.metric is not None}
    assert set(found) == {
        "influence_correlation",
        "peer_correlation",
        "influence_error",
        "flipped_found",
        "influence_queries",
    }, {m.reason for m in record.measurements if m.technique == name}
    (value,) = found["influence_correlation"].samples or ()
    assert (value > 0.3) == (name != "random-influence")
