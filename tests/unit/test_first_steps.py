"""What somebody meets who adds a technique for the first time."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from paceline.base.errors import UserError
from paceline.base.families.family import family_names, load_family
from paceline.cli import application
from paceline.cli.measuring.run import say_failures
from paceline.records.store.folder import RunRecord
from paceline.records.store.lookup import find_run
from paceline.spec.content import checkout_root, suite_files

ROOT = checkout_root()
assert ROOT is not None
SUITE = """\
suite: kernels/mine
version: 1
family: kernels
description: Mine against the library's.
workload: {op: gemm, m: 8, n: 8, k: 8}
baseline: torch-eager
techniques: [torch-eager, my-lab/rows]
"""
TECHNIQUE = '''\
"""A product, row by row."""

import torch

from paceline import technique


@technique(name="my-lab/rows", family="kernels", implements=("gemm",), summary="row by row")
class Rows:
    def __init__(self, problem, *, rows: int = 4):
        self.rows = rows

    def run(self, a, b, c):
        torch.matmul(a, b, out=c)
'''


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(application, [str(a) for a in arguments])


def test_validate_knows_the_techniques_that_stand_beside_a_suite(tmp_path: Path) -> None:
    suite, technique = tmp_path / "mine.yaml", tmp_path / "rows.py"
    suite.write_text(SUITE)
    technique.write_text(TECHNIQUE)
    assert invoke("validate", suite, technique).output == "2 files checked, 0 mistakes\n"
    alone = invoke("validate", suite)
    assert "unknown technique 'my-lab/rows'" in alone.output and alone.exit_code == 2


@pytest.mark.parametrize("family", [f for f in family_names() if load_family(f).operations])
def test_every_operation_can_be_shown(family: str) -> None:
    suites = suite_files()
    for name, operation in load_family(family).operations.items():
        if f"{family}/{name.replace('_', '-')}" in suites:
            continue  # such a name is the suite's
        output = invoke("show", f"{family}/{name}").output
        assert f"operation: {name}\nfamily: {family}\n" in output
        assert " ".join(operation.summary.split())[:40] in " ".join(output.split())
        assert f"families/{family}/ops/{name}/" in output


def test_a_new_technique_may_say_its_family_and_whose_it_is(tmp_path: Path) -> None:
    path = tmp_path / "row_chunks.py"
    assert invoke("new", "technique", "kernels/my-lab/row-chunks", "--output", path).exit_code == 0
    assert 'name="my-lab/row-chunks"' in path.read_text()
    refused = invoke("new", "technique", "kernels/a/b/c", "--output", tmp_path / "c.py").exception
    assert isinstance(refused, UserError) and "its family may stand before it" in str(refused)


def test_a_metric_that_the_suite_does_not_compare_is_compared_when_asked_for() -> None:
    store = ROOT / "results" / "published"
    record = find_run([store], "01a1fe7e-23fd")
    metrics = {m.metric.name for m in record.measurements}
    suite = {name for facts in record.run.suites for name in facts["metrics"]}
    other = sorted(metrics - suite)[0]
    output = invoke("compare", record.run_id, "--results", store, "--metrics", other).output
    assert other in output and "cannon" in output


def test_a_crash_names_the_command_that_prints_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    store = ROOT / "results" / "published"
    record = find_run([store], "01a1fe7e-23fd")
    crashed = record.measurements[0].model_copy(
        update={"status": "crashed", "value": None, "reason": "ValueError: no", "detail": "Traceback …"}
    )
    say_failures(RunRecord(path=record.path, run=record.run, measurements=(crashed,), events=(), sealed=True))
    assert f"traceback: paceline show {crashed.record_id}" in capsys.readouterr().err
