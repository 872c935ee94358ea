"""What a cluster says of Jobs and pods, read: objects as ``kubectl get --output=json`` prints them, cut down."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline.drivers.kubernetes.states import (
    DONE,
    REASONS,
    Ending,
    JobState,
    PodState,
    View,
    judge,
    read_objects,
    waits,
)

Object = dict[str, Any]
IMAGE = "registry.example/team/paceline@sha256:0123"
MADE = "2026-03-01T10:00:00Z"


def condition(kind: str, status: str, reason: str | None = None, message: str | None = None) -> Object:
    found: Object = {"lastProbeTime": None, "lastTransitionTime": MADE, "status": status, "type": kind}
    return {**found, **({"reason": reason} if reason else {}), **({"message": message} if message else {})}


SCHEDULED = condition("PodScheduled", "True")


def number_of_pod(state: PodState) -> int:
    """Return which node of the run a pod is, from the name that ``pod`` gives it."""
    return int(state.name.split("-")[3])


def pod(index: int = 0, node: str | None = "node-a", **status: Any) -> Object:
    metadata = {
        "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        "creationTimestamp": MADE,
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "generateName": f"paceline-x-0-{index}-",
        "name": f"paceline-x-0-{index}-8k2fz",
        "namespace": "ml",
    }
    spec = {"containers": [{"image": IMAGE, "name": "launcher"}], **({"nodeName": node} if node else {})}
    whole = {"phase": "Pending", "qosClass": "Guaranteed", **status}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": whole}


def container(**state: Any) -> list[Object]:
    return [{"image": IMAGE, "name": "launcher", "ready": False, "restartCount": 0, "state": state}]


def terminated(code: int, reason: str, message: str | None = None, at: str = "10:05:00") -> list[Object]:
    more = {"message": message} if message else {}
    ended = {"exitCode": code, "finishedAt": f"2026-03-01T{at}Z", "reason": reason, "startedAt": MADE}
    return container(terminated={**ended, **more})


def job(*conditions: Object, suspend: bool = False) -> Object:
    spec = {"backoffLimit": 0, "completionMode": "Indexed", "completions": 2, "suspend": suspend}
    status = {"active": 2, "conditions": list(conditions)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "x"},
        "spec": spec,
        "status": status,
    }


def read(*items: Object) -> View:
    return read_objects(json.dumps({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {}}))


def read_pod(item: Object) -> PodState:
    (found,) = read(item).pods
    return found


BACKOFF = condition("Failed", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
WAITING: dict[str, tuple[Object, str, str]] = {
    "unschedulable": (
        pod(
            node=None,
            conditions=[
                condition(
                    "PodScheduled",
                    "False",
                    "Unschedulable",
                    "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. preemption: 0/4 nodes are available: "
                    "4 No preemption victims found for incoming pod.",
                )
            ],
        ),
        "UNSCHEDULABLE",
        "Unschedulable: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu.",
    ),
    "no claim": (
        pod(
            node=None,
            conditions=[
                condition("PodScheduled", "False", "Unschedulable", 'persistentvolumeclaim "r" not found')
            ],
        ),
        "UNSCHEDULABLE",
        'Unschedulable: persistentvolumeclaim "r" not found',
    ),
    "image": (
        pod(
            conditions=[SCHEDULED],
            containerStatuses=container(
                waiting={"message": f'Back-off pulling image "{IMAGE}"', "reason": "ImagePullBackOff"}
            ),
        ),
        "IMAGE",
        f'ImagePullBackOff: Back-off pulling image "{IMAGE}"',
    ),
    "first try": (
        pod(
            conditions=[SCHEDULED],
            containerStatuses=container(
                waiting={"message": "failed to resolve reference: 403", "reason": "ErrImagePull"}
            ),
        ),
        "IMAGE",
        "ErrImagePull: failed to resolve reference: 403",
    ),
    "container": (
        pod(
            conditions=[SCHEDULED],
            containerStatuses=container(
                waiting={
                    "message": 'failed to prepare subPath for volumeMount "job" of container "launcher"',
                    "reason": "CreateContainerConfigError",
                }
            ),
        ),
        "CONTAINER",
        "CreateContainerConfigError: failed to prepare subPath",
    ),
    "being made": (
        pod(conditions=[SCHEDULED], containerStatuses=container(waiting={"reason": "ContainerCreating"})),
        "NOT_STARTED",
        "ContainerCreating",
    ),
    "just made": (pod(node=None), "NOT_STARTED", ""),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_a_pod_waits_for_is_told_in_the_clusters_words(name: str) -> None:
    item, code, words = WAITING[name]
    found = read_pod(item)
    assert (found.waiting, found.ending) == (code, "")
    assert found.why.startswith(words)
    assert waits(read(job(), item)) == found
    assert judge(JobState(), [found]) is None


def disrupted(by: str, words: str, **more: Any) -> Object:
    return pod(
        **{
            "phase": "Failed",
            "conditions": [condition("DisruptionTarget", "True", by, words), SCHEDULED],
            "containerStatuses": terminated(137, "Error"),
            **more,
        }
    )


ENDED: dict[str, tuple[Object, str]] = {
    "out of memory": (pod(phase="Failed", containerStatuses=terminated(137, "OOMKilled")), "OUT_OF_MEMORY"),
    "evicted by pressure": (
        disrupted(
            "TerminationByKubelet",
            "The node was low on resource: ephemeral-storage.",
            reason="Evicted",
            message="The node was low on resource: ephemeral-storage.",
        ),
        "EVICTED",
    ),
    "room in memory": (
        pod(
            phase="Failed",
            reason="Evicted",
            message='Usage of EmptyDir volume "shm" exceeds the limit "1Gi".',
        ),
        "EVICTED",
    ),
    "drained": (
        disrupted("EvictionByEvictionAPI", "Eviction API: evicting", phase="Running", containerStatuses=[]),
        "EVICTED",
    ),
    "preempted": (
        disrupted(
            "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"
        ),
        "PREEMPTED",
    ),
    "preempted by a node": (
        pod(phase="Failed", reason="Preempting", message="Preempted in order to admit critical pod"),
        "PREEMPTED",
    ),
    "unreachable": (
        disrupted(
            "DeletionByTaintManager",
            "Taint manager: deleting due to NoExecute taint",
            phase="Running",
            containerStatuses=container(running={"startedAt": MADE}),
        ),
        "NODE_LOST",
    ),
    "gone with its node": (
        disrupted(
            "DeletionByPodGC",
            "PodGC: node no longer exists",
            containerStatuses=terminated(137, "ContainerStatusUnknown"),
        ),
        "NODE_LOST",
    ),
    "shutdown": (
        pod(
            phase="Failed",
            reason="Terminated",
            message="Pod was terminated in response to imminent node shutdown.",
        ),
        "NODE_LOST",
    ),
    "unknown": (
        pod(
            phase="Failed",
            containerStatuses=terminated(
                137,
                "ContainerStatusUnknown",
                "The container could not be located when the pod was terminated",
            ),
        ),
        "NODE_LOST",
    ),
    "refused by its node": (
        pod(
            phase="Failed",
            reason="OutOfnvidia.com/gpu",
            message="Node didn't have enough resource: nvidia.com/gpu, requested: 8, used: 8, capacity: 8",
        ),
        "UNSCHEDULABLE",
    ),
    "devices unhealthy": (
        pod(
            phase="Failed",
            reason="UnexpectedAdmissionError",
            message="Allocate failed due to no healthy devices",
        ),
        "UNSCHEDULABLE",
    ),
    "no such program": (
        pod(
            phase="Failed",
            containerStatuses=terminated(128, "StartError", 'exec: "/bin/sh": no such file or directory'),
        ),
        "CONTAINER",
    ),
}


@pytest.mark.parametrize("name", ENDED)
def test_a_pod_that_the_cluster_ended_is_nobodys_result(name: str) -> None:
    item, code = ENDED[name]
    found = read_pod(item)
    assert (found.ending, found.waiting) == (code, "")
    ending = judge(JobState(ending="FAILED"), [found])
    assert ending == Ending(code=code, pod=found)
    assert ending.reason.startswith(
        f"{code}: {REASONS[code]} (pod paceline-x-0-0-8k2fz on node-a): {found.why[:20]}"
    )


def test_a_job_that_completed_is_done_also_beside_a_pod_that_is_taken_away() -> None:
    done = job(condition("SuccessCriteriaMet", "True"), condition("Complete", "True", "CompletionsReached"))
    items = [pod(n, phase="Succeeded", containerStatuses=terminated(0, "Completed")) for n in (0, 1)]
    view = read(done, *items)
    assert judge(view.job, view.pods) == Ending(code=DONE)
    assert [number_of_pod(p) for p in view.pods] == [0, 1]
    assert judge(JobState(), view.pods) is None


def test_of_several_pods_the_first_that_failed_is_named() -> None:
    """When one fails, the cluster ends the others, which then have an exit code of their own."""
    first = pod(1, phase="Failed", containerStatuses=terminated(2, "Error", at="10:05:00"))
    second = pod(0, phase="Failed", containerStatuses=terminated(143, "Error", at="10:05:09"))
    view = read(job(BACKOFF), first, second)
    ending = judge(view.job, view.pods)
    assert ending is not None
    assert (ending.code, ending.pod and number_of_pod(ending.pod), ending.pod and ending.pod.exit_code) == (
        "FAILED",
        1,
        2,
    )


def test_what_the_cluster_did_outweighs_the_launchers_own_end() -> None:
    own = pod(0, phase="Failed", containerStatuses=terminated(3, "Error", at="10:04:59"))
    killed = pod(1, phase="Failed", containerStatuses=terminated(137, "OOMKilled"))
    view = read(job(BACKOFF), own, killed)
    ending = judge(view.job, view.pods)
    assert ending is not None
    assert ending.code == "OUT_OF_MEMORY"


@pytest.mark.parametrize("kind", ["Failed", "FailureTarget"])
def test_a_job_over_its_deadline_is_late_and_its_pods_are_gone(kind: str) -> None:
    late = condition(kind, "True", "DeadlineExceeded", "Job was active longer than specified deadline")
    view = read(job(late))
    ending = judge(view.job, view.pods)
    assert ending is not None
    assert ending.reason == (
        "TIMEOUT: the job reached its time limit: DeadlineExceeded: Job was active longer than specified deadline"
    )


def test_pods_that_a_queue_holds_do_not_wait_for_nodes() -> None:
    gated = pod(node=None, conditions=[condition("PodScheduled", "False", "SchedulingGated", "gates")])
    assert waits(read(job(), gated)) is None
    assert waits(read(job(condition("Suspended", "True"), suspend=True), pod(node=None))) is None
    assert waits(read(pod(node=None))) is None


def test_running_pods_wait_for_nothing_and_an_empty_cluster_knows_nothing() -> None:
    item = pod(
        phase="Running", conditions=[SCHEDULED], containerStatuses=container(running={"startedAt": MADE})
    )
    found = read_pod(item)
    assert (found.waiting, found.ending, found.node) == ("", "", "node-a")
    assert read() == View(job=None, pods=())
    assert judge(None, ()) is None


def test_the_pod_with_least_patience_is_named() -> None:
    view = read(job(), pod(0, node=None), {**WAITING["image"][0], "metadata": pod(1)["metadata"]})
    found = waits(view)
    assert found is not None
    assert (number_of_pod(found), found.waiting) == (1, "IMAGE")


def test_long_words_are_cut_and_lines_joined() -> None:
    found = read_pod(pod(phase="Failed", reason="Evicted", message="a\nb " * 500))
    assert "\n" not in found.why
    assert len(found.why) <= 300
