"""The kernel's counters beside the communicator's, in one run of the runner ``netns-cpu``.

A rank's interface carries, besides the payload that the communicator counts, 66 bytes of headers for each segment that
TCP hands to it, of up to 64 KiB, and as much for each acknowledgement: 0.2 to 0.4 % together from 1 MiB on, of the 3 %
that are allowed. The techniques differ in who sends how much to whom, and in whether they send what they were given, so
that a count that is right for one ring only is found out.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from measured import record_of

from paceline.records.store.folder import RunRecord
from paceline.spec.suites.suite import Suite
from paceline.spec.suites.suite_file import load_suite
from paceline.worker.network.links import supported

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif((reason := supported()) is not None, reason=reason or "shaped links work"),
]
MUTANTS = [
    Path(__file__).parents[1] / "mutants" / "collectives" / f"{name}.py"
    for name in ("hides_behind_noise", "shares_memory_by_name")
]
RANKS = 4
MIB = 1 << 20
HEADERS = 1.03
"""Most that the kernel may count for a payload byte, from ``MIB`` on the wire on."""
COMMON = {
    "version": 1,
    "family": "collectives",
    "why": "The kernel must count what the communicator counts.",
    "protocol": {
        "launches": 1,
        "min_samples": 3,
        "max_samples": 3,
        "warmup": "none",
        "warmup_seconds": 0,
        "kernel_calls": 5,
    },
}
SUITES = {
    "exact": {
        "workload": {"op": "all_reduce", "payload": "gaussian"},
        "baseline": "native",
        "techniques": [
            *("native", "ring", "recursive-doubling", "tree", "hierarchical"),
            *("hides-behind-noise", "shares-memory-by-name"),
        ],
        "matrix": {"size_bytes": [MIB], "ranks": [RANKS]},
    },
    "coded": {
        "workload": {"op": "all_reduce", "payload": "gaussian"},
        "baseline": "int8-ring",
        "techniques": ["int8-ring"],
        "matrix": {"size_bytes": [3 * MIB], "ranks": [RANKS]},
    },
    "pairs": {
        "workload": {"op": "mix", "dtype": "float32", "payload": "gaussian"},
        "baseline": "gossip-pair",
        "techniques": ["gossip-pair"],
        "matrix": {"size_bytes": [MIB], "ranks": [RANKS]},
    },
    "chain": {
        "workload": {"op": "linear_attention"},
        "baseline": "all-scan",
        "techniques": ["all-scan"],
        "matrix": {"tokens": [4], "heads": [4], "head_dim": [256], "ranks": [RANKS]},
    },
}
CARRIED = {
    "ring": (1.5, 6.0),
    "recursive-doubling": (2.0, 8.0),
    "tree": (2.0, 6.0),
    "hierarchical": (1.5, 6.0),
    "int8-ring": (3 * 1.5 / 4, 3 * 6.0 / 4),
    "gossip-pair": (1.0, 4.0),
    "all-scan": (1.0, 3.0),
}
"""MiB of payload that the busiest rank sends in a call, and all four ranks together."""


def write_suite(folder: Path, name: str) -> Suite:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"suite": f"collectives/{name}", **COMMON, **SUITES[name]}))
    return load_suite(path, extra=MUTANTS)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("counters")
    suites = [write_suite(folder, name) for name in SUITES]
    return record_of(suites, folder, runner="netns-cpu")


def values(record: RunRecord, technique: str, metric: str) -> list[float]:
    found = [m for m in record.measurements if m.label == technique]
    assert found
    assert all(m.status == "ok" for m in found), [m.reason for m in found]
    return [m.value for m in found if m.metric.name == metric and m.value is not None]


@pytest.mark.parametrize("technique", CARRIED)
@pytest.mark.parametrize(("kind", "which"), [("", 0), ("_total", 1)])
def test_the_kernel_counts_the_communicator_s_bytes_and_at_most_3_percent_of_headers(
    record: RunRecord, technique: str, kind: str, which: int
) -> None:
    (counted,) = values(record, technique, f"wire_bytes{kind}")
    (carried,) = values(record, technique, f"kernel_bytes{kind}")
    assert counted >= MIB
    assert counted == pytest.approx(CARRIED[technique][which] * MIB, rel=0.01)
    assert 1.0 <= carried / counted <= HEADERS


def test_only_the_kernel_knows_the_bytes_of_the_backend(record: RunRecord) -> None:
    assert not values(record, "native", "wire_bytes")
    (carried,) = values(record, "native", "kernel_bytes")
    ideal = 2 * (RANKS - 1) / RANKS * MIB
    assert 1.0 <= carried / ideal <= 1.05


def test_bytes_around_the_communicator_are_seen_by_the_kernel(record: RunRecord) -> None:
    (found,) = [m for m in record.measurements if m.label == "hides-behind-noise"]
    assert found.status == "refused"
    assert "the kernel carried" in (found.reason or "")


def test_bytes_that_never_left_are_missed_by_the_kernel(record: RunRecord) -> None:
    (found,) = [m for m in record.measurements if m.label == "shares-memory-by-name"]
    assert found.status == "refused"
    assert "left on the ranks' interface" in (found.reason or "")
