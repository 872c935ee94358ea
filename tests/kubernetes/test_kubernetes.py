"""Runs through the real kubectl: pods that meet and measure, every way of ending badly, and controllers that die."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from fake_cluster import Cluster, Object, condition, now
from kubernetes_runs import IMAGE, POINT, Start

pytestmark = pytest.mark.kubernetes


@pytest.mark.gate
@pytest.mark.timeout(180)
@pytest.mark.parametrize("jobset", [False, pytest.param(True, marks=pytest.mark.full)])
def test_two_pods_meet_by_the_services_names_and_measure_together(
    cluster: Cluster, start: Start, jobset: bool
) -> None:
    run = start(*POINT, jobset=jobset)
    code, output = run.end()
    assert code == 0, output
    lines = run.record()
    measured = [m for m in lines if m["line"] == "measurement"]
    assert {m["status"] for m in measured} == {"ok"}
    assert {(m["scale"]["nodes"], m["scale"]["ranks"]) for m in measured} == {(2, 2)}
    (submitted,) = [e["data"] for e in lines if e.get("kind") == "submitted"]
    (ended,) = [e["data"] for e in lines if e.get("kind") == "task_end"]
    assert (ended["state"], ended["nodes"]) == ("COMPLETED", "n0,n1")
    assert IMAGE in submitted["script"]
    assert submitted["version"] == "Kubernetes v1.33.0-fake"
    assert cluster.objects == {}


def stuck(pod: Object) -> None:
    """Let a pod sleep in the place of its launcher."""
    pod["spec"]["containers"][0]["command"] = ["/bin/sleep", "600"]


def running(cluster: Cluster) -> list[str]:
    """Return the names of the pods that run."""
    return [p["metadata"]["name"] for p in cluster.pods() if p["status"]["phase"] == "Running"]


def infrastructure_reason(lines: list[Object]) -> str:
    """Return the one reason of a record whose every measurement failed by its infrastructure."""
    measured = [line for line in lines if line["line"] == "measurement"]
    assert {m["status"] for m in measured} == {"infrastructure"}
    assert all(m["samples"] == [] and m["value"] is None for m in measured)
    (reason,) = {m["reason"] for m in measured}
    return str(reason)


def fails(reason: str = "", **more: object) -> Callable[[Object], None]:
    """Return what a node writes of a pod that it ended."""

    def change(pod: Object) -> None:
        pod["status"] |= {"phase": "Failed", "reason": reason, **more}

    return change


OOM = {
    "containerStatuses": [
        {
            "name": "launcher",
            "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": now()}},
        }
    ]
}
PREEMPTED = condition("DisruptionTarget", "True", "PreemptionByScheduler", "preempting to run a higher one")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            fails("Evicted", message="The node was low on resource: memory."),
            "EVICTED: a node evicted a pod (pod {pod} on n1): Evicted: The node was low on resource: memory.",
        ),
        (
            fails(**OOM),
            "OUT_OF_MEMORY: a pod needed more memory than it was given (pod {pod} on n1): OOMKilled",
        ),
        (
            fails(conditions=[PREEMPTED]),
            "PREEMPTED: a pod had to make room for others (pod {pod} on n1): PreemptionByScheduler: preempting to",
        ),
    ],
    ids=["evicted", "out-of-memory", "preempted"],
)
def test_a_pod_that_the_cluster_ends_is_infrastructure(
    cluster: Cluster, start: Start, change: Callable[[Object], None], words: str
) -> None:
    cluster.before_start = stuck
    run = start(*POINT)
    cluster.wait_for(lambda: len(running(cluster)) == 2)
    pod = running(cluster)[1]
    cluster.end_pod(pod, change)
    code, output = run.end()
    assert code == 3, output
    assert infrastructure_reason(run.record()).startswith(words.format(pod=pod))
    assert cluster.objects == {}


def test_pods_that_no_node_takes_are_infrastructure_once_they_have_waited(
    cluster: Cluster, start: Start
) -> None:
    cluster.devices = {"example.com/fpga": 1}
    run = start(*POINT, resources={"example.com/fpga": 2}, pending_seconds=2)
    code, output = run.end()
    assert code == 3, output
    reason = infrastructure_reason(run.record())
    assert reason.startswith("UNSCHEDULABLE: no node of the cluster took a pod (pod ")
    assert reason.endswith("0/2 nodes are available: 2 Insufficient example.com/fpga.")


def test_an_image_that_cannot_be_fetched_is_infrastructure(cluster: Cluster, start: Start) -> None:
    other = IMAGE.replace("paceline@", "none@")
    run = start(*POINT, image=other, pending_seconds=2)
    code, output = run.end()
    assert code == 3, output
    assert infrastructure_reason(run.record()).startswith("IMAGE: a node could not fetch the image (pod ")


def test_a_job_over_its_time_limit_is_infrastructure(cluster: Cluster, start: Start) -> None:
    cluster.before_start = stuck
    code, output = (run := start(*POINT, time_limit=2, pending_seconds=1)).end()
    assert code == 3, output
    assert infrastructure_reason(run.record()).startswith(
        "TIMEOUT: the job reached its time limit: DeadlineEx"
    )


def test_a_job_that_somebody_deletes_is_infrastructure(cluster: Cluster, start: Start) -> None:
    cluster.before_start = stuck
    run = start(*POINT)
    cluster.wait_for(lambda: len(running(cluster)) == 2)
    (name,) = (name for kind, _, name in cluster.objects if kind == "Job")
    cluster.delete("Job", "default", name)
    code, output = run.end()
    assert code == 3, output
    assert infrastructure_reason(run.record()).startswith(
        "LOST: the cluster knows nothing of the job any more"
    )


def test_ctrl_c_deletes_the_job_and_a_second_run_does_the_rest(cluster: Cluster, start: Start) -> None:
    cluster.before_start = stuck
    first = start(*POINT)
    cluster.wait_for(lambda: len(running(cluster)) == 2)
    first.process.send_signal(signal.SIGINT)
    code, output = first.end()
    assert code == 3
    assert f"paceline run --resume {first.job().name}" in output
    assert cluster.objects == {}
    assert all(process.poll() is not None for process in cluster.processes.values())
    cluster.before_start = lambda pod: None
    second = start("--resume", first.job().name)
    code, output = second.end()
    assert code == 0, output
    lines = second.record()
    assert {m["status"] for m in lines if m["line"] == "measurement"} == {"ok"}
    ends = [e["data"]["state"] for e in lines if e.get("kind") == "task_end"]
    assert ends == ["CANCELLED", "COMPLETED"]


def test_pods_outlive_a_controller_that_is_killed_and_another_takes_over(
    cluster: Cluster, start: Start
) -> None:
    first = start(*POINT)
    cluster.wait_for(lambda: len(running(cluster)) == 2)
    first.process.kill()
    first.process.communicate()
    pods = running(cluster)
    cluster.wait_for(lambda: [p["status"]["phase"] for p in cluster.pods()] == ["Succeeded"] * 2)
    assert [p["metadata"]["name"] for p in cluster.pods()] == pods
    second = start("--resume", first.job().name)
    code, output = second.end()
    assert code == 0, output
    lines = second.record()
    assert len([e for e in lines if e.get("kind") == "submitted"]) == 1
    assert {m["status"] for m in lines if m["line"] == "measurement"} == {"ok"}
    assert cluster.objects == {}


def test_a_launcher_that_fails_by_itself_leaves_the_run_open(cluster: Cluster, start: Start) -> None:
    run = start(*POINT, python="/nonexistent/python3")
    code, output = run.end()
    assert code == 3
    assert "the launcher ended with exit code 2" in output
    assert "/nonexistent/python3 has no torch or no numpy" in output
    assert f"paceline run --resume {run.job().name}" in output
    assert cluster.objects == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"namespace": "nowhere"}, 'namespaces "nowhere" not found'),
        ({"jobset": True}, 'no matches for kind "JobSet"'),
    ],
    ids=["namespace", "jobset"],
)
def test_what_the_cluster_refuses_is_told_in_its_words_and_nothing_is_left(
    cluster: Cluster, start: Start, settings: dict[str, object], words: str
) -> None:
    cluster.has_jobsets = False
    code, output = start(*POINT, **settings).end()
    assert code == 3
    assert words in output
    assert cluster.objects == {}
