"""Tasks that Slurm does not start: they are told while they wait, and given up where waiting cannot end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline.drivers.progress import waiting_text
from paceline.drivers.slurm import driver

JOB = "17"


class Cluster:
    """Answers Slurm's commands, and keeps what was cancelled."""

    def __init__(self) -> None:
        self.queue: dict[int, tuple[str, str]] = {}
        """Task → state and reason."""
        self.cancelled: list[str] = []
        self.now_s = 1000.0

    def ask(self, *command: str) -> str:
        match command[0]:
            case "squeue":
                return "".join(f"{JOB}|{t}|{state}|{why}|\n" for t, (state, why) in self.queue.items())
            case "scontrol":
                rows = self.queue.items()
                return "".join(
                    f"ArrayTaskId={t} JobState={state} Reason={why} Restarts=0\n" for t, (state, why) in rows
                )
            case "scancel":
                self.cancelled.append(command[1])
                return ""
        raise AssertionError(command)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(driver, "ask", made.ask)
    return made


@pytest.fixture
def follow(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., driver.SlurmExecution]:
    """Return what follows a job of two tasks."""
    failed: list[str] = []
    monkeypatch.setattr(driver, "fail_missing", lambda folder, events, reason: failed.append(reason))
    for share in (0, 1):
        (tmp_path / "shares" / str(share)).mkdir(parents=True)

    def made(**settings: Any) -> driver.SlurmExecution:
        defaults = {"poll_s": 0.0, "unreachable_s": 600.0, "max_requeues": 3, "pending_s": None}
        ticket = {"job_id": JOB, "shares": [0, 1], "closed": False}
        execution = driver.SlurmExecution(tmp_path, defaults | settings, ticket, clock=lambda: cluster.now_s)
        execution.failed = failed  # type: ignore[attr-defined]
        return execution

    return made


def events(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "events-scheduler.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_task_that_can_never_start_ends_at_once_with_the_reason(
    cluster: Cluster, follow: Callable[..., Any], tmp_path: Path
) -> None:
    cluster.queue = {0: ("PENDING", "PartitionTimeLimit"), 1: ("RUNNING", "None")}
    execution = follow()
    assert execution.poll() is None
    assert execution.failed == [
        "IMPOSSIBLE: the cluster can never start the task as it was submitted: PartitionTimeLimit (task 17_0)"
    ]
    assert cluster.cancelled == ["17_0"]
    assert [e["state"] for e in events(tmp_path) if e["event"] == "task_end"] == ["IMPOSSIBLE"]


def test_what_tasks_wait_for_is_told_whenever_it_changes(
    cluster: Cluster, follow: Callable[..., Any], tmp_path: Path
) -> None:
    execution = follow()
    for state in (
        {0: ("PENDING", "Priority"), 1: ("PENDING", "JobArrayTaskLimit")},
        {0: ("PENDING", "Priority"), 1: ("PENDING", "JobArrayTaskLimit")},
        {0: ("PENDING", "Resources"), 1: ("PENDING", "Resources")},
        {0: ("RUNNING", "None"), 1: ("RUNNING", "None")},
    ):
        cluster.queue = state
        cluster.now_s += 36_000.0
        assert execution.poll() is None
    told = [e["reasons"] for e in events(tmp_path) if e["event"] == "waiting"]
    assert told == [{"Priority": 1}, {"Resources": 2}, {}]
    assert execution.failed == [], "without a limit a task waits for as long as it takes"


def test_a_task_that_waits_longer_than_the_profile_allows_is_given_up(
    cluster: Cluster, follow: Callable[..., Any]
) -> None:
    cluster.queue = {0: ("PENDING", "Priority"), 1: ("PENDING", "JobArrayTaskLimit")}
    execution = follow(pending_s=600.0)
    assert execution.poll() is None
    cluster.now_s += 599.0
    assert execution.poll() is None
    assert execution.failed == []
    cluster.now_s += 2.0
    assert execution.poll() is None
    assert execution.failed == [
        "NOT_STARTED: the task was not started within pending_seconds: Priority (task 17_0)"
    ]
    assert cluster.cancelled == ["17_0"]
    cluster.queue = {1: ("PENDING", "Resources")}
    cluster.now_s += 10.0
    assert execution.poll() is None, "the other one waits for nodes only since now"
    assert len(execution.failed) == 1


def test_a_task_that_ran_in_between_waits_anew(cluster: Cluster, follow: Callable[..., Any]) -> None:
    execution = follow(pending_s=600.0)
    for state, later_s in (("PENDING", 500.0), ("RUNNING", 500.0), ("PENDING", 500.0)):
        cluster.queue = {0: (state, "Priority"), 1: ("RUNNING", "None")}
        assert execution.poll() is None
        cluster.now_s += later_s
    assert execution.poll() is None
    assert execution.failed == []


@pytest.mark.parametrize(
    ("reasons", "text"),
    [
        ({"Priority": 1}, "1 task waits in the queue: Priority"),
        ({"Priority": 2, "Resources": 1}, "3 tasks wait in the queue: 2 × Priority, 1 × Resources"),
        ({}, ""),
        ("Priority", ""),
        ({"Priority": "many", "\x1b[31m": 1}, ""),
        (None, ""),
    ],
)
def test_progress_says_what_tasks_wait_for(reasons: object, text: str) -> None:
    assert waiting_text(reasons) == text
