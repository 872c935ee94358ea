"""Layers that compute again in backward: techniques that gather, shard or overlap stay exact, and memory falls."""

from __future__ import annotations

import pytest
from measured import record_of

from paceline.records.format.record import Measurement
from paceline.spec.suites.suite_file import load_suite
from paceline.workflows.conformance import points_of

HONEST = ("ddp", "ddp-ring", "fsdp", "zero-2", "zero-3", "diloco")
"""One of each way to hook a layer: none, buckets of gradients, gathered and freed weights of PyTorch's and ours."""
COUNTED = ("ddp-ring", "zero-2", "zero-3", "diloco")
"""Those whose steps are counted: torch's own wrappers are not."""

Results = dict[tuple[str, str, str], Measurement]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Return measurements by technique, activations and metric."""
    folder = tmp_path_factory.mktemp("recomputed")
    (point,) = points_of("training", "data_parallel")
    lines = "".join(f"  {k}: {v}\n" for k, v in (point | {"proof": "brief", "context": 64}).items())
    path = folder / "recomputed.yaml"
    path.write_text(
        "suite: training/recomputed\nversion: 1\nfamily: training\ndescription: Recomputed activations.\n"
        f"workload:\n  op: data_parallel\n  ranks: 2\n{lines}matrix:\n  activations: [kept, recomputed]\n"
        f"baseline: ddp-ring\ntechniques: [{', '.join(HONEST)}]\n"
        "protocol: {launches: 1, timeout: 120s}\nmetrics: {eval_loss: {}, transient_bytes: {}, state_bytes: {}}\n"
    )
    found = record_of([load_suite(path)], folder).measurements
    return {(m.technique, str(m.params["activations"]), m.metric.name): m for m in found}


@pytest.mark.parametrize("technique", HONEST)
def test_a_technique_stays_exact_and_its_state_what_it_was(technique: str, results: Results) -> None:
    for metric in ("eval_loss", "state_bytes"):
        kept, recomputed = (results[technique, activations, metric] for activations in ("kept", "recomputed"))
        assert kept.status == recomputed.status == "ok", recomputed.reason
    assert kept.value == recomputed.value


@pytest.mark.parametrize("technique", COUNTED)
def test_a_step_keeps_less(technique: str, results: Results) -> None:
    kept, recomputed = (results[technique, a, "transient_bytes"].value for a in ("kept", "recomputed"))
    assert kept is not None and recomputed is not None
    assert recomputed < 0.8 * kept
