"""The kernel's counters beside the communicator's, in a run of the runner ``netns-cpu``."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paceline import content
from paceline.drivers.measure import measure
from paceline.plan import Selection, make_plan
from paceline.profile import load_runner
from paceline.store import RunRecord, read_record
from paceline.suite import load_suite
from paceline.worker.netns import supported

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif((reason := supported()) is not None, reason=reason or "shaped links work"),
]
MUTANT = Path(__file__).parents[1] / "mutants" / "collectives" / "hides_behind_noise.py"
SIZES = (1 << 20, 3 << 20)
SUITE = {
    "suite": "collectives/kernel-counters",
    "version": 1,
    "family": "collectives",
    "why": "The kernel must count what the communicator counts.",
    "workload": {"op": "all_reduce", "payload": "gaussian"},
    "baseline": "native",
    "techniques": ["native", "ring", "hides-behind-noise"],
    "matrix": {"size_bytes": list(SIZES), "ranks": [3]},
    "protocol": {"launches": 1, "min_samples": 4, "max_samples": 4, "warmup": "none"},
}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("counters")
    path = folder / "suite.yaml"
    path.write_text(yaml.safe_dump(SUITE))
    suite = load_suite(path, extra=[MUTANT])
    plan = make_plan([suite], load_runner(content.find_runner("netns-cpu")), Selection())
    outcome = measure(plan, [suite], folder / "results")
    assert outcome.path is not None
    return read_record(outcome.path)


def values(record: RunRecord, technique: str, metric: str) -> dict[int, float]:
    return {
        int(m.params["size_bytes"]): m.value
        for m in record.measurements
        if m.label == technique and m.metric.name == metric and m.value is not None
    }


@pytest.mark.parametrize("size_bytes", SIZES)
@pytest.mark.parametrize("kind", ["", "_total"])
def test_the_kernel_counts_the_ring_s_bytes_and_at_most_3_percent_of_headers(
    record: RunRecord, size_bytes: int, kind: str
) -> None:
    counted = values(record, "ring", f"wire_bytes{kind}")[size_bytes]
    carried = values(record, "ring", f"kernel_bytes{kind}")[size_bytes]
    assert 1.0 <= carried / counted <= 1.03


@pytest.mark.parametrize("size_bytes", SIZES)
def test_only_the_kernel_knows_the_bytes_of_the_backend(record: RunRecord, size_bytes: int) -> None:
    assert size_bytes not in values(record, "native", "wire_bytes")
    ideal = 2 * 2 / 3 * size_bytes
    assert 1.0 <= values(record, "native", "kernel_bytes")[size_bytes] / ideal <= 1.05


def test_bytes_around_the_communicator_are_seen_by_the_kernel(record: RunRecord) -> None:
    found = [m for m in record.measurements if m.label == "hides-behind-noise"]
    assert [m.status for m in found] == ["refused"] * len(SIZES)
    assert all("the kernel carried" in (m.reason or "") for m in found)
