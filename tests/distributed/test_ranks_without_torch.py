"""Operations that compute with no tensor run where PyTorch cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from paceline_commands import command

from paceline.base.errors import EXIT_OK
from paceline.base.families.family import family_names, load_family
from paceline.records.store.folder import read_record, sealed_paths
from paceline.worker.processes import fork_server
from paceline.worker.processes.needs import need_torch

pytestmark = pytest.mark.gate
BARE = sorted(
    family.runner_module(name)
    for family in (load_family(name) for name in family_names())
    for name, operation in family.operations.items()
    if not operation.needs_torch
)


@pytest.fixture
def without_torch(tmp_path: Path) -> dict[str, str]:
    """The variables of a process that finds a PyTorch which cannot be imported."""
    package = tmp_path / "front" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('nobody may import this')\n")
    return {**os.environ, "PYTHONPATH": str(package.parent)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("time", "true", "echo", "--launches", "1"), "2 ok"),
        # whether the client was fit for figures is the machine's affair
        (
            (
                "load",
                "mock:first=1ms,gap=1ms",
                "--preset",
                "random:8/2",
                "--concurrency",
                "4",
                "--requests",
                "8",
            ),
            "calls: 8 complete",
        ),
    ],
    ids=["time", "load"],
)
def test_a_command_measures(
    words: tuple[str, ...], said: str, tmp_path: Path, without_torch: dict[str, str]
) -> None:
    results = tmp_path / "results"
    ran = subprocess.run(
        command(*words, "--results", results),
        env=without_torch,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said in ran.stdout, ran.stdout + ran.stderr
    assert "nobody may import this" not in ran.stdout + ran.stderr
    assert len(sealed_paths(results)) == 1


TECHNIQUE = """
import numpy as np
from paceline import technique
from paceline.families.programs.api import aggregation
from paceline.families.programs.api.program import Program


@technique(name="counted", family="programs", implements=("execute",), summary="prints what numpy counts")
class Counted:
    def program(self, given: str) -> Program:
        from torch import nn

        return Program(argv=("echo", str(int(np.arange(4).sum()) + len(nn.__name__))))
"""


def test_a_technique_of_a_rank_without_torch_may_import_what_computes(tmp_path: Path) -> None:
    """Their first import replaces, opens and starts much that no technique may: it is the harness that makes it."""
    results, file = tmp_path / "results", tmp_path / "counted.py"
    file.write_text(TECHNIQUE)
    suite = tmp_path / "counted.yaml"
    suite.write_text(
        "suite: programs/counted\nversion: 1\nfamily: programs\ndescription: d\nworkload: {op: execute}\n"
        "baseline: echo\ntechniques: [{technique: command, as: echo, options: {command: echo}}]\n"
        "protocol: {launches: 1, min_samples: 1, max_seconds: 0.01, warmup: none}\n"
    )
    ran = subprocess.run(
        command("run", suite, "--technique", file, "--results", results),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == EXIT_OK, ran.stdout + ran.stderr
    (path,) = sealed_paths(results)
    found = {m.label: (m.status, m.reason) for m in read_record(path).measurements}
    assert found == {"echo": ("ok", None), "counted": ("ok", None)}


def test_modules_that_measure_import_no_torch(without_torch: dict[str, str]) -> None:
    """Neither the rank nor what it measures with, whichever of them is imported first."""
    assert "paceline.families.programs.ops.execute.run" in BARE
    source = "import importlib\nfor name in {!r}: importlib.import_module(name)".format(
        ["paceline.worker.ranks.rank", *BARE]
    )
    subprocess.run([sys.executable, "-c", source], env=without_torch, check=True)


def _block(operation: str, family: str, ranks: int = 1) -> dict[str, Any]:
    return {"family": family, "params": {"op": operation}, "ranks": ranks, "block": "b", "cases": []}


@pytest.mark.parametrize(
    ("blocks", "device", "needed"),
    [
        ([_block("execute", "programs")], "cpu", False),
        ([_block("execute", "programs"), _block("endpoint", "serving")], "cpu", False),
        ([_block("execute", "programs"), _block("serve", "serving")], "cpu", True),
        ([_block("execute", "programs", ranks=2)], "cpu", True),
        ([_block("execute", "programs")], "cuda", True),
        ([_block("all_reduce", "collectives", ranks=2)], "fake", True),
        ([_block("an operation of another version", "programs")], "cpu", True),
    ],
)
def test_the_fork_server_imports_torch_where_a_rank_needs_it(
    blocks: list[dict[str, Any]], device: str, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = {"device": device, "start": "forked", "env": {}}
    assert need_torch(blocks, runner) == needed
    asked: list[str] = []
    monkeypatch.setattr(fork_server.multiprocessing, "set_forkserver_preload", asked.extend)
    monkeypatch.setattr(fork_server.forkserver, "ensure_running", lambda: None)
    monkeypatch.setattr(fork_server, "measuring", lambda plan: [])
    fork_server.begin({"runner": runner, "blocks": blocks})
    assert ("paceline.worker.ranks.group" in asked) == needed
    assert asked[-1] == fork_server.PRELOADED, "what freezes all that is there comes last"
