"""Several instances of a block within a launch, on real ranks, and the levels that are told apart by them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import paceline_commands
import pytest
from leftover import assert_nothing_left

from paceline.base.errors import EXIT_OK, EXIT_REGRESSION
from paceline.records.store.folder import read_record, record_paths

SUITE = """\
suite: collectives/anew
version: 1
family: collectives
description: A ring needs two messages where one exchange does.
workload: {op: all_reduce, payload: gaussian, size_bytes: 4KiB}
baseline: native
techniques: [native, ring, int8-ring]
matrix: {ranks: [2]}
protocol: {launches: 1, instances: 3, max_seconds: 2, min_samples: 4, max_samples: 4, warmup: none, kernel_calls: 1}
metrics:
  latency: {margin: 0.05}
"""
LIMIT_S = 240


def paceline(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        paceline_commands.command(*arguments, "--quiet", "--allow-concurrent"),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_each_instance_is_measured_and_judged(tmp_path: Path) -> None:
    suite, store = tmp_path / "anew.yaml", tmp_path / "store"
    suite.write_text(SUITE)
    done = paceline("run", suite, "--results", store)
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    (path,) = record_paths(store)
    record = read_record(path)
    found = {(m.label, m.metric.name): m for m in record.measurements}
    for label in ("native", "ring", "int8-ring"):
        latency = found[(label, "latency")]
        assert latency.status == "ok"
        assert latency.instances == [4, 4, 4]
        assert len(latency.samples) == 12
        assert latency.order is not None
        assert len(set(latency.order)) == 12
        assert latency.correctness is not None
        assert latency.correctness["timed_calls_verified"] >= 12
        assert len(set(latency.correctness["input_seeds"])) == 3
        assert latency.accounting is not None
        assert len(latency.accounting["harness"]["instances"]) == 3
    # Bytes are the same in all instances and kept once; each instance's own errors are kept.
    assert found[("ring", "wire_bytes")].samples == [4096.0]
    assert found[("ring", "wire_bytes")].instances is None
    assert found[("int8-ring", "relative_l2_error")].instances == [4, 4, 4]
    assert_nothing_left(store)
    verified = paceline_verify(store)
    assert verified.returncode == EXIT_OK, verified.stdout + verified.stderr


def paceline_verify(store: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        paceline_commands.command("store", "verify", "--results", store),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize("text", [SUITE.replace("instances: 3, ", "").replace(", int8-ring", "")])
def test_levels_are_told_apart(tmp_path: Path, text: str) -> None:
    suite, store, output = tmp_path / "anew.yaml", tmp_path / "store", tmp_path / "figures"
    suite.write_text(text)
    numbers = ("--launches", 3, "--instances", 2, "--rounds", 8)
    done = paceline("calibrate", "--levels", suite, *numbers, "--results", store, "--output", output)
    assert done.returncode in (EXIT_OK, EXIT_REGRESSION), done.stdout + done.stderr
    assert "spread of the ratio" in done.stdout
    (figure,) = json.loads((output / "local-cpu-levels.json").read_text())["figures"]
    assert figure["name"].startswith("ring / native")
    assert figure["trials"] == 3
    assert set(figure["details"]["levels"]) == {"launch", "instance", "round"}
    assert figure["details"]["levels"]["round"]["variance"] > 0
    assert min(figure["details"]["costs_s"].values()) > 0
    assert figure["details"]["suites_own"]["launches"] == 1


KERNEL = """\
suite: kernels/anew
version: 1
family: kernels
description: A product whose sides fit no tile.
workload: {op: gemm}
baseline: torch-eager
techniques: [torch-eager, split-k]
zip: [{m: [65], n: [129], k: [257]}]
protocol: {launches: 1, instances: 2, max_seconds: 5, min_samples: 4, max_samples: 4, warmup: none}
metrics:
  latency: {margin: 0.05}
"""


def test_a_kernel_is_proven_once_and_timed_in_processes_of_its_own(tmp_path: Path) -> None:
    suite, store = tmp_path / "anew.yaml", tmp_path / "store"
    suite.write_text(KERNEL)
    done = paceline("run", suite, "--results", store)
    assert done.returncode == EXIT_OK, done.stdout + done.stderr
    (path,) = record_paths(store)
    found = {(m.label, m.metric.name): m for m in read_record(path).measurements}
    for label in ("torch-eager", "split-k"):
        latency = found[(label, "latency")]
        assert latency.instances == [4, 4]
        assert len(latency.samples) == 8
        assert latency.ceilings is not None
        assert latency.value is not None
        fraction = latency.ceilings["model_s"] / latency.value
        assert found[(label, "calibrated_fraction")].samples == [pytest.approx(fraction)]
    assert paceline_verify(store).returncode == EXIT_OK
