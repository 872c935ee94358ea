"""Runs of known objectives: honest techniques are measured, known-wrong ones refused, each for its own reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from measured import record_of

from paceline.records.store.folder import RunRecord
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import results_of

MUTANTS = Path(__file__).parents[1] / "mutants" / "objective"
ALONE = "does not follow from what it was told"
WRONG = {
    "shares-a-global": ("incorrect", ALONE),
    "peeks-at-others": ("incorrect", ALONE),
    "tosses-a-coin": ("incorrect", ALONE),
    "sends-more-than-it-says": (
        "incorrect",
        "sent 320 bits in a message; by its own formula a message has 160",
    ),
    "knows-the-optimum": ("refused", r"imports paceline.families.training.ops.objective.optimum"),
    "reads-the-clock-ahead": ("refused", r"imports paceline.families.training.ops.objective.paces"),
    "waits-for-the-past": ("refused", "would wait until 0 s"),
    "forgets-a-release": ("incorrect", "its releases reveal ε"),
    "looks-without-noise": ("incorrect", "reveal everything"),
    "hands-over-objects": ("refused", "something else than arrays of numbers"),
    "talks-beside-the-graph": ("refused", "none of its neighbours"),
    "gives-the-server-data": ("refused", "the server has no data"),
    "averages-wrongly": ("incorrect", "it is not federated-averaging: iterate 1 is off"),
    "asks-for-gradients": ("incorrect", "asks for values alone, and asked for a gradient"),
    "never-reports": ("incorrect", "no node ever reported a model"),
}
PRIVATE = {"forgets-a-release", "looks-without-noise"}
WHY = "description: Known-wrong techniques must be refused."
COMMON = f"version: 1\nfamily: training\n{WHY}\nprotocol: {{launches: 1, timeout: 300s}}\n"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("objective")
    plain, private = folder / "plain.yaml", folder / "private.yaml"
    plain.write_text(
        f"suite: training/plain\n{COMMON}"
        "workload: {op: objective, nodes: 4, dim: 5, samples: 6, heterogeneity: 0.3, horizon: 60s}\n"
        f"baseline: federated-averaging\ntechniques: [federated-averaging, {', '.join(sorted(set(WRONG) - PRIVATE))}]\n"
    )
    private.write_text(
        f"suite: training/private\n{COMMON}"
        "workload: {op: objective, problem: nonconvex, nodes: 2, dim: 5, samples: 50, privacy_epsilon: 1.0, "
        "horizon: 150s}\n"
        f"baseline: private-descent\ntechniques: [private-descent, {', '.join(sorted(PRIVATE))}]\n"
    )
    extra = sorted(MUTANTS.glob("*.py"))
    return record_of([load_suite(path, extra=extra) for path in (plain, private)], folder)


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_optimiser_gets_no_number(name: str, record: RunRecord) -> None:
    status, reason = WRONG[name]
    (result,) = [r for r in results_of(record, "training") if r.technique == name]
    assert result.status == status, result.reason
    assert re.search(reason, result.reason or ""), result.reason


@pytest.mark.parametrize(
    ("name", "metric"), [("federated-averaging", "final_distance"), ("private-descent", "privacy_spent")]
)
def test_an_honest_optimiser_beside_it_is_measured(name: str, metric: str, record: RunRecord) -> None:
    found = {m.metric.name: m for m in record.measurements if m.technique == name and m.metric is not None}
    assert metric in found, {m.reason for m in record.measurements if m.technique == name}
    (value,) = found[metric].samples or ()
    assert value >= 0
