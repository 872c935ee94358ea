"""Runs through a real Slurm of two nodes: results, every way of ending badly, and controllers that die."""

from __future__ import annotations

import re
import signal
import time

import pytest
from cluster import Cluster
from slurm_runs import POINT, STUCK, Controller, Start

pytestmark = pytest.mark.slurm


def infrastructure_reasons(lines: list[dict]) -> set[str]:
    """Return the reasons of a record whose every measurement failed by its infrastructure."""
    measured = [line for line in lines if line["line"] == "measurement"]
    assert measured
    assert {m["status"] for m in measured} == {"infrastructure"}
    assert all(m["samples"] == [] and m["value"] is None for m in measured)
    return {m["reason"] for m in measured}


def test_a_task_that_somebody_cancels_is_infrastructure(
    cluster: Cluster, start: Start, slow_endings: dict[str, Controller]
) -> None:
    run = start(*POINT, slurm=STUCK)
    cluster.ask("scancel", run.wait_for_task())
    code, output = run.end()
    assert code == 3, output
    (reason,) = infrastructure_reasons(run.record())
    assert reason.startswith("CANCELLED: somebody cancelled the task")


def test_ctrl_c_cancels_the_tasks_and_keeps_the_run_for_later(cluster: Cluster, start: Start) -> None:
    run = start(*POINT, slurm=STUCK)
    job = run.wait_for_task()
    run.process.send_signal(signal.SIGINT)
    code, output = run.end()
    assert code == 3
    assert f"paceline run --resume {run.job().name}" in output
    assert not [line for line in cluster.queue() if line.startswith(f"{job}_")]


def test_a_partition_that_does_not_exist_is_refused_in_the_schedulers_words(start: Start) -> None:
    code, output = start(*POINT, slurm={"partition": "nowhere"}).end()
    assert code == 3
    assert "invalid partition specified: nowhere" in output.lower()


def test_a_task_that_can_never_start_ends_with_the_schedulers_reason(cluster: Cluster, start: Start) -> None:
    """Slurm takes a job whose limit is above its partition's, and lets it wait for ever."""
    cluster.ask("scontrol", "create", "partitionname=short", "nodes=n0", "maxtime=5")
    one = {"partition": "short", "time_limit": "20min", "array_tasks": 1, "array_at_once": 1}
    run = start(*POINT, "--techniques", "ring", slurm=one, name="impossible")
    code, output = run.end()
    assert code == 3, output
    (reason,) = infrastructure_reasons(run.record())
    assert reason.startswith(
        "IMPOSSIBLE: the cluster can never start the task as it was submitted: Partition"
    )
    assert cluster.ask("squeue", "-h", "--partition=short") == ""
    cluster.ask("scontrol", "delete", "partitionname=short")


def test_a_task_over_its_time_limit_is_infrastructure(slow_endings: dict[str, Controller]) -> None:
    run = slow_endings["timeout"]
    code, output = run.end()
    assert code == 3, output
    (reason,) = infrastructure_reasons(run.record())
    assert re.fullmatch(r"TIMEOUT: the task reached its time limit \(task \d+_0 on n0\)", reason)


def test_a_killed_node_daemon_is_infrastructure(
    cluster: Cluster, slow_endings: dict[str, Controller]
) -> None:
    run = slow_endings["node"]
    try:
        code, output = run.end()
    finally:
        cluster.start_node("n1")
    assert code == 3, output
    (reason,) = infrastructure_reasons(run.record())
    assert re.fullmatch(r"NODE_FAIL: a node of the task failed \(task \d+_0 on n1\)", reason)
    cluster.wait_for(lambda: cluster.ask("sinfo", "-h", "-n", "n1", "-o", "%t").strip() == "idle")


def test_a_controller_that_was_killed_is_followed_by_another_also_when_the_task_was_queued_again(
    slow_endings: dict[str, Controller],
) -> None:
    second = slow_endings["requeued"]
    code, output = second.end()
    assert code == 0, f"{output}\n{second.cluster.logs()}"
    lines = second.record()
    assert len([e for e in lines if e.get("kind") == "submitted"]) == 1
    (end,) = [e["data"] for e in lines if e.get("kind") == "task_end"]
    assert (end["state"], end["restarts"]) == ("COMPLETED", 1)
    assert {m["status"] for m in lines if m["line"] == "measurement"} == {"ok"}


@pytest.mark.gate
@pytest.mark.timeout(180)
def test_an_array_of_blocks_measures_on_two_nodes_and_leaves_nothing_in_the_queue(
    cluster: Cluster, start: Start
) -> None:
    """The shipped profile, as it is."""
    both = ["collectives/all-reduce", "--tier", "quick", "--launches", "1", "--techniques", "native,ring"]
    run = start(*both)
    code, output = run.end()
    assert code == 0, output
    lines = run.record()
    (submitted,) = [e for e in lines if e.get("kind") == "submitted"]
    ended = [e["data"] for e in lines if e.get("kind") == "task_end"]
    measured = [m for m in lines if m["line"] == "measurement"]
    assert len(submitted["data"]["shares"]) == len(ended) >= 2
    assert {e["state"] for e in ended} == {"COMPLETED"}
    assert {e["nodes"] for e in ended} == {"n[0-1]"}
    assert "#SBATCH --nodes=2" in submitted["data"]["script"]
    assert {m["status"] for m in measured} == {"ok"}
    assert {(m["scale"]["nodes"], m["scale"]["ranks"]) for m in measured} == {(2, 2)}
    assert not any(m["series_key"] is None for m in measured)
    assert cluster.queue() == []


def test_no_rank_outlives_its_task(cluster: Cluster) -> None:
    """After all tests before: nothing that a task started is alive."""
    deadline = time.monotonic() + 120
    while (left := cluster.strays()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert left == {}
