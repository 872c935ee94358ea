"""What tests on the stub accelerator share: it is built once a session, and a runner profile names it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import seeds
import stub_accelerator

from paceline.records.store.folder import RunRecord
from paceline.workflows.conformance import run_suites

RUNNER = """\
runner: stub
description: Ranks on stub accelerators of this machine.
driver: local
device: plugin
backend: stubccl
max_ranks: 4
env: {OMP_NUM_THREADS: "1", TRITON_INTERPRET: "1"}
limits: {launch_seconds: 120s}
"""
RunSuite = Callable[..., RunRecord]
TECHNIQUES = Path(__file__).with_name("techniques")
Python = Callable[..., str]


@pytest.fixture(scope="session")
def stub_site() -> Path:
    """Build the accelerator, once for all processes and all runs until its sources change; return where it is."""
    if reason := stub_accelerator.missing():
        pytest.skip(reason)
    folder = Path(tempfile.gettempdir()) / f"paceline-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return stub_accelerator.install(folder)


@pytest.fixture(scope="module", autouse=True)
def stub_on_path(stub_site: Path) -> Iterator[None]:
    """Let processes that tests start find it; this one has imported torch already, and does not. Others' do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(stub_site))
        yield


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """Return a runner profile of the stub."""
    path = tmp_path / "stub.yaml"
    path.write_text(RUNNER)
    return path


@pytest.fixture
def run_suite(tmp_path: Path, runner: Path) -> RunSuite:
    """Return what measures a suite, given as YAML, on the stub; techniques of these tests go by their files' names."""

    def run(text: str, *files: str) -> RunRecord:
        path = tmp_path / "suite.yaml"
        path.write_text(textwrap.dedent(text))
        own = [TECHNIQUES / f"{name}.py" for name in files]
        return run_suites([path], folder=tmp_path, runner=str(runner), files=own, seed=seeds.current())

    return run


@pytest.fixture
def python() -> Python:
    """Return what runs a program in a process that has the stub, and returns what it prints."""

    def run(code: str, *, expect: int = 0) -> str:
        ended = subprocess.run(
            [sys.executable, "-c", f"import time, torch\n{textwrap.dedent(code)}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert ended.returncode == expect, ended.stderr
        return ended.stdout + ended.stderr

    return run
