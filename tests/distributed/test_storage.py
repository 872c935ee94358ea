"""What a run of the command line does with its results folder: full, read-only, or shared with seven other runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import paceline_commands
import pytest

from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_OK, EXIT_USAGE, InfrastructureError
from paceline.records.store.folder import load
from paceline.records.store.integrity import verify
from paceline.worker.events import require_room

SUITE = """\
suite: collectives/storage
version: 1
family: collectives
description: Little to measure; what counts is where it is kept.
workload: {op: all_reduce, payload: gaussian, size_bytes: 4KiB, dtype: float32}
baseline: native
techniques: [native, ring]
matrix: {ranks: [1]}
protocol: {launches: 3, max_seconds: 0.05, warmup_seconds: 0.02, kernel_calls: 0}
metrics: {latency: {margin: 0.05}}
"""
NUM_RESULTS = 6
"""Launches × techniques."""
NUM_RUNS = 8
RUN_LIMIT_S = 180
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def start(folder: Path, store: Path, *arguments: str) -> subprocess.Popen[str]:
    suite = folder / "storage.yaml"
    suite.write_text(SUITE)
    what = arguments or (str(suite), "--runner", "local-cpu")
    return subprocess.Popen(
        paceline_commands.command("run", *what, "--results", store),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def fill(folder: Path) -> Path:
    """Take all room that is left."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    return filler


@pytest.mark.root
@needs_root
def test_a_read_only_results_folder_ends_a_run_before_it_begins(mounted: Any, tmp_path: Path) -> None:
    with mounted(tmp_path / "closed", "size=64k,ro") as store:
        run = start(tmp_path, store)
        output, _ = run.communicate(timeout=RUN_LIMIT_S)
    assert run.returncode == EXIT_USAGE, output
    assert "read-only file system" in output
    assert "fix: --results=DIR" in output
    assert "Traceback" not in output


@pytest.mark.root
@needs_root
def test_a_disk_too_small_for_the_job_ends_a_run_and_is_left_as_it_was(mounted: Any, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=256k") as store:
        run = start(tmp_path, store)
        output, _ = run.communicate(timeout=RUN_LIMIT_S)
        left = [path for path in store.rglob("*") if path.is_file()]
    assert run.returncode == EXIT_INFRASTRUCTURE, output
    assert "the disk is full.\n  fix: free some space, then: the same command again" in output
    assert len(output) < 2000, "one error for each file"
    assert left == []


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("seen", ["host", "result"], ids=["before-the-first-line", "after-a-result"])
def test_a_disk_that_fills_up_loses_nothing_and_the_run_goes_on_when_there_is_room(
    mounted: Any, tmp_path: Path, seen: str
) -> None:
    """The disk fills when ranks have given their first event of a kind."""
    with mounted(tmp_path / "filling", "size=16m") as store:
        run = start(tmp_path, store)
        while not any(f'"event":"{seen}"' in p.read_text() for p in store.glob("jobs/*/events-*.jsonl")):
            assert run.poll() is None
            time.sleep(0.02)
        filler = fill(store)
        output, _ = run.communicate(timeout=RUN_LIMIT_S)
        assert run.returncode == EXIT_INFRASTRUCTURE, output
        assert "the disk is full; everything measured so far is kept" in output
        (job,) = (store / "jobs").iterdir()
        assert f"paceline run --resume {job.name}" in output
        assert [r for r in load([store]).records if r.sealed] == []
        filler.unlink()
        again = start(tmp_path, store, "--resume", job.name)
        output, _ = again.communicate(timeout=RUN_LIMIT_S)
        assert again.returncode == EXIT_OK, output
        (record,) = load([store]).records
        ids = [m.record_id for m in record.measurements]
        assert len(ids) == len(set(ids))
        assert {m.status for m in record.measurements} == {"ok"}
        assert len({(m.launch, m.label) for m in record.measurements}) == NUM_RESULTS
        assert verify(store) == []


@pytest.mark.root
@needs_root
def test_a_disk_with_room_for_a_word_but_not_for_a_result_is_full(mounted: Any, tmp_path: Path) -> None:
    """A rank could still say that it failed there, and its technique would be blamed."""
    with (
        mounted(tmp_path / "tight", "size=512k") as folder,
        pytest.raises(InfrastructureError, match="No space left on device"),
    ):
        require_room(folder)
    require_room(tmp_path)
    assert list(tmp_path.glob("probe-*")) == []


def test_eight_runs_at_once_into_one_store_lose_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    runs = [
        start(tmp_path, store, str(tmp_path / "storage.yaml"), "--launches", "1") for _ in range(NUM_RUNS)
    ]
    for run in runs:
        output, _ = run.communicate(timeout=RUN_LIMIT_S)
        assert run.returncode == EXIT_OK, output
    records = load([store]).records
    assert len({r.run_id for r in records}) == NUM_RUNS
    for record in records:
        assert record.sealed
        assert {m.label for m in record.measurements if m.status == "ok"} == {"native", "ring"}
    assert verify(store) == []
