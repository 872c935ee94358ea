"""``paceline new`` writes files that are right as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from paceline.base.errors import UserError
from paceline.cli.new import new
from paceline.spec import content
from paceline.spec.suite import load_suite
from paceline.workflows.conformance import run_suites

SUITE = """
suite: collectives/with-mine
version: 1
family: collectives
description: A new technique has to run.
workload: {op: all_reduce}
baseline: native
techniques: [native, my-lab/gather-add]
matrix: {size_bytes: [4100], ranks: [1, 3]}
protocol: {launches: 1, max_seconds: 0.05, warmup: none, min_samples: 3, max_samples: 4, kernel_calls: 0}
metrics: {latency: {}, wire_bytes: {}}
"""


def test_a_new_technique_passes_its_gate_and_its_formulas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "mine"
    folder = root / "baselines" / "collectives"
    folder.mkdir(parents=True)
    result = CliRunner().invoke(
        new, ["technique", "my-lab/gather-add", "--output", str(folder / "gather_add.py")]
    )
    assert result.exit_code == 0, result.output
    monkeypatch.setenv(content.ENVIRONMENT_VARIABLE, str(root))
    suite = tmp_path / "with-mine.yaml"
    suite.write_text(SUITE)
    record = run_suites([suite], folder=tmp_path / "run")
    mine = [m for m in record.measurements if m.label == "my-lab/gather-add"]
    assert {m.status for m in mine} == {"ok"}, [m.reason for m in mine]
    counted = [m for m in mine if m.metric.name == "wire_bytes"]
    assert counted
    assert all(m.value == m.predicted for m in counted)


def test_a_new_suite_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "my-suite.yaml"
    assert CliRunner().invoke(new, ["suite", "my-suite", "--output", str(path)]).exit_code == 0
    assert load_suite(path).name == "collectives/my-suite"


@pytest.mark.parametrize("name", ["../evil", "Capital", "a/b/c", ""])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    result = CliRunner().invoke(new, ["technique", name])
    assert isinstance(result.exception, UserError)


def test_a_file_that_exists_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("precious")
    result = CliRunner().invoke(new, ["technique", "mine", "--output", str(path)])
    assert isinstance(result.exception, UserError)
    assert path.read_text() == "precious"
