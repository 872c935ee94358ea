"""``paceline once``: a technique at a point as a program that prints its figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from paceline.base.errors import EXIT_INCORRECT, EXIT_OK, EXIT_USAGE
from paceline.cli import application
from paceline.records.store.folder import read_record, record_paths

pytestmark = pytest.mark.usefixtures("fixed_plans")

SUITE = """
suite: collectives/twice
version: 1
family: collectives
description: Two sizes.
workload: {op: all_reduce, dtype: float32}
baseline: native
techniques: [native, ring]
matrix: {ranks: [1], size_bytes: [64B, 1KiB]}
protocol: {launches: 5, min_samples: 3, max_samples: 4, max_seconds: 0.05, warmup: none}
"""
WRONG = """
import paceline


@paceline.technique(name="nothing", family="collectives", implements=("all_reduce",), summary="does nothing")
class Nothing:
    def __init__(self, comm):
        self.comm = comm

    def run(self, tensor):
        tensor.zero_()
        return tensor
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = tmp_path / "twice.yaml"
    path.write_text(SUITE)
    return path


def once(*words: object) -> Result:
    return CliRunner().invoke(application, ["once", *map(str, words)])


@pytest.mark.gate
def test_the_figures_of_one_technique_are_one_line_and_nothing_stays(suite: Path, tmp_path: Path) -> None:
    ran = once(suite, "ring", "--filter", "size_bytes=64")
    assert ran.exit_code == EXIT_OK, ran.output
    (line,) = ran.stdout.splitlines()
    told = json.loads(line)
    assert told.pop("technique") == "ring"
    assert told["latency"] > 0
    assert told["wire_bytes"] == 0  # of one rank
    assert sorted(p.name for p in tmp_path.iterdir()) == ["twice.yaml"]


@pytest.mark.gate
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ring",), "'ring' runs at 2 points: size_bytes 64, 1024"),
        (("rings", "--filter", "size_bytes=64"), "did you mean 'ring'"),
        (("ring", "--filter", "size_bytes=65"), "size_bytes"),
        (("ring", "--runner", "nowhere"), "nowhere"),
    ],
)
def test_what_is_not_one_case_is_refused(words: tuple[str, ...], said: str, suite: Path) -> None:
    ran = once(suite, *words)
    error = ran.exception
    assert said in (ran.output + str(error)), ran.output
    assert getattr(error, "exit_code", ran.exit_code) == EXIT_USAGE
    assert "{" not in ran.stdout


def test_wrong_results_have_no_figures(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text(WRONG)
    ran = once(suite, "nothing", "--technique", "nothing.py", "--filter", "size_bytes=64")
    assert ran.exit_code == EXIT_INCORRECT, ran.output
    assert ran.stdout == ""


def test_it_stands_beside_a_program_in_a_run(suite: Path, tmp_path: Path) -> None:
    """A harness within a harness: the inner run waits for no other, and leaves no process behind."""
    inner = f"{sys.executable} -m paceline.cli once {suite} ring --filter size_bytes=64"
    store = tmp_path / "store"
    ran = CliRunner().invoke(
        application,
        [
            *("time", inner, "echo {latency:1}", "--name", "ring", "--name", "other", "--launches", "1"),
            *("--metric", "latency_s=latency\\W+([0-9.e-]+)", "--timeout", "100s", "--results", str(store)),
        ],
    )
    assert ran.exit_code == EXIT_OK, ran.output
    (record,) = map(read_record, record_paths(store))
    found = {m.label: m.value for m in record.measurements if m.metric.name == "reported_latency_s"}
    assert found["ring"] > 0 and found["other"] == 1
