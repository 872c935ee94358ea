"""Threads of a group's ranks never preempt each other when they wake; single ranks are scheduled as usual."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import paceline_commands
import psutil
import pytest
import yaml

from paceline.records.store.folder import read_record
from paceline.records.store.integrity import verify

SUITE = {
    "suite": "collectives/example",
    "version": 1,
    "family": "collectives",
    "why": "Ranks and their backend's threads are looked at from outside.",
    "workload": {"op": "all_reduce", "payload": "gaussian"},
    "baseline": "native",
    "techniques": ["native", "ring"],
    "protocol": {"launches": 2, "max_seconds": 0.5, "warmup": "none"},
    "metrics": {"latency": {}},
}


def policies(command: list[str]) -> tuple[dict[str, set[int]], int]:
    """Return the policies of each rank's threads, as they were last seen, and the most threads that a rank had."""
    found: dict[str, set[int]] = {}
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        while running.poll() is None:
            with suppress(psutil.Error):
                for one in psutil.Process(running.pid).children(recursive=True):
                    with suppress(psutil.Error, OSError):
                        if one.name()[len("paceline:") :].isdigit() and (threads := one.threads())[1:]:
                            most = max(most, len(threads))
                            found[one.name()] = {os.sched_getscheduler(t.id) for t in threads}
        assert running.returncode == 0, running.stderr.read() if running.stderr else ""
    return found, most


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux only")
@pytest.mark.parametrize(
    ("ranks", "scheduling", "expected"),
    [(2, None, "batch"), (2, "normal", "normal"), (1, None, "normal")],
    ids=["a group", "a group as usual", "one rank"],
)
def test_all_threads_of_ranks_are_scheduled_as_the_profile_says(
    ranks: int, scheduling: str | None, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "suite.yaml").write_text(
        yaml.safe_dump({**SUITE, "matrix": {"size_bytes": [65536], "ranks": [ranks]}})
    )
    runner = {"runner": "here", "driver": "local", "device": "cpu", "backend": "gloo", "why": "A test."}
    if scheduling:
        runner["scheduling"] = scheduling
    (tmp_path / "runner.yaml").write_text(yaml.safe_dump(runner))
    found, most = policies(
        [
            str(Path(sys.executable).with_name("paceline")),
            *paceline_commands.arguments("run", tmp_path / "suite.yaml", "--allow-concurrent"),
            *("--runner", str(tmp_path / "runner.yaml"), "--results", str(tmp_path / "results")),
        ]
    )
    assert sorted(found) == [f"paceline:{rank}" for rank in range(ranks)]
    # the backend's threads among them
    assert most >= 3 or ranks == 1
    policy = os.SCHED_BATCH if expected == "batch" else os.SCHED_OTHER
    assert all(seen == {policy} for seen in found.values())
    assert not verify(tmp_path / "results")
    (path,) = (tmp_path / "results").rglob("*.jsonl.gz")
    run = read_record(path).run
    assert run.runner["scheduling"] == (scheduling or "batch")
