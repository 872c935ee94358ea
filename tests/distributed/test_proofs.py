"""A proof is made once in a run; what is timed is judged in every launch."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import paceline_commands
import pytest
from click.testing import CliRunner

from paceline.cli import application
from paceline.drivers import execute
from paceline.records.store.folder import RunRecord, read_record, record_paths

SUITES = {
    "collectives/proofs": """\
suite: collectives/proofs
version: 1
family: collectives
description: One exact and one lossy way to sum.
workload: {op: all_reduce, payload: gaussian, size_bytes: 8KiB}
baseline: native
techniques: [native, ring, int8-ring]
matrix: {ranks: [2]}
protocol: {launches: 3, max_seconds: 0.05, warmup_seconds: 0.02, kernel_calls: 0}
""",
    "kernels/proofs": """\
suite: kernels/proofs
version: 1
family: kernels
description: A product, in two ways.
workload: {op: gemm, m: 33, n: 17, k: 65}
baseline: torch-eager
techniques: [torch-eager, split-k]
protocol: {launches: 3, max_seconds: 0.05, warmup_seconds: 0.02}
""",
}


@pytest.fixture(scope="module", params=SUITES, ids=["collectives", "kernels"])
def ran(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunRecord, list[Any]]:
    """Return the record of a run of three launches, and all events of its ranks."""
    folder = tmp_path_factory.mktemp("proofs")
    suite = folder / "proofs.yaml"
    suite.write_text(SUITES[request.param])
    kept = pytest.MonkeyPatch()
    kept.setattr(execute, "tidy", lambda job: None)
    command = paceline_commands.arguments("run", suite, "--results", folder, "--quiet", "--allow-concurrent")
    result = CliRunner().invoke(application, command)
    kept.undo()
    assert result.exit_code == 0, result.output
    (path,) = record_paths(folder)
    events = [
        json.loads(line)
        for file in sorted((folder / "jobs").glob("*/events-[0-9]*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    return read_record(path), events


def test_every_rank_proves_each_thing_in_the_first_launch_alone(ran: tuple[RunRecord, list[Any]]) -> None:
    record, events = ran
    proved = [e for e in events if e["event"] == "proved"]
    assert proved and {e["launch"] for e in proved} == {0}
    assert set(Counter((e["rank"], e["key"]) for e in proved).values()) == {1}
    keys = {rank: {e["key"] for e in proved if e["rank"] == rank} for rank in {e["rank"] for e in events}}
    assert all(own == keys[0] for own in keys.values())
    assert {m.launch for m in record.measurements if m.status == "ok"} == {0, 1, 2}


def test_every_launch_says_what_it_was_judged_by(ran: tuple[RunRecord, list[Any]]) -> None:
    record, _ = ran
    for label in {m.label for m in record.measurements}:
        judged = [m.correctness for m in record.measurements if m.label == label and m.correctness]
        found = [c for c in judged if "gate_checks" in c or "checks" in c]
        assert len(found) == 3, judged
        assert all(c["passed"] for c in found)
