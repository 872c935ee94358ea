"""What a Kubernetes cluster says about a run's Job and pods, as data: JSON in, states and endings out. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

DONE = "COMPLETED"
FAILED = "FAILED"
UNSCHEDULABLE = "UNSCHEDULABLE"
IMAGE = "IMAGE"
CONTAINER = "CONTAINER"
NOT_STARTED = "NOT_STARTED"
OUT_OF_MEMORY = "OUT_OF_MEMORY"
EVICTED = "EVICTED"
PREEMPTED = "PREEMPTED"
NODE_LOST = "NODE_LOST"
TIMEOUT = "TIMEOUT"
LOST = "LOST"

REASONS: Mapping[str, str] = {
    UNSCHEDULABLE: "no node of the cluster took a pod",
    IMAGE: "a node could not fetch the image",
    CONTAINER: "a node could not start the container",
    NOT_STARTED: "a pod did not start in time",
    OUT_OF_MEMORY: "a pod needed more memory than it was given",
    EVICTED: "a node evicted a pod",
    PREEMPTED: "a pod had to make room for others",
    NODE_LOST: "the node of a pod was lost",
    TIMEOUT: "the job reached its time limit",
    LOST: "the cluster knows nothing of the job any more: somebody deleted it",
}
"""Endings that are nobody's result: the reason code, and its sentence."""

PATIENCE_S: Mapping[str, float] = {IMAGE: 60.0, CONTAINER: 60.0}
"""How long pods may be kept by what a node tries again by itself; for what is not here, as long as the profile says."""

_WAITING = {
    "ErrImagePull": IMAGE,
    "ImagePullBackOff": IMAGE,
    "InvalidImageName": IMAGE,
    "ErrImageNeverPull": IMAGE,
    "ImageInspectError": IMAGE,
    "RegistryUnavailable": IMAGE,
    "SignatureValidationFailed": IMAGE,
    "CreateContainerConfigError": CONTAINER,
    "CreateContainerError": CONTAINER,
    "RunContainerError": CONTAINER,
    "CrashLoopBackOff": CONTAINER,
    "PostStartHookError": CONTAINER,
}
"""Reasons for which a container waits, apart from being made."""
_TERMINATED = {
    "OOMKilled": OUT_OF_MEMORY,
    "ContainerStatusUnknown": NODE_LOST,
    "ContainerCannotRun": CONTAINER,
    "StartError": CONTAINER,
}
_POD_REASONS = {
    "Evicted": EVICTED,
    "Preempting": PREEMPTED,
    "Preempted": PREEMPTED,
    "DeadlineExceeded": TIMEOUT,
    "NodeLost": NODE_LOST,
    "NodeShutdown": NODE_LOST,
    "Shutdown": NODE_LOST,
    "Terminated": NODE_LOST,
    "NodeAffinity": UNSCHEDULABLE,
    "NodeName": UNSCHEDULABLE,
    "NodePorts": UNSCHEDULABLE,
    "TopologyAffinityError": UNSCHEDULABLE,
    "UnexpectedAdmissionError": UNSCHEDULABLE,
}
"""Reasons of a whole pod that has failed; ``OutOf…`` beside them, where a node took it and had too little after all."""
_DISRUPTIONS = {
    "PreemptionByScheduler": PREEMPTED,
    "PreemptionByKubeScheduler": PREEMPTED,
    "DeletionByTaintManager": NODE_LOST,
    "DeletionByPodGC": NODE_LOST,
    "EvictionByEvictionAPI": EVICTED,
    "TerminationByKubelet": EVICTED,
}
"""Why something other than the pod's own work is about to end it."""
MESSAGE_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """One pod."""

    name: str
    node: str = ""
    """The cluster's node that it is on."""
    ending: str = ""
    """DONE, FAILED or a code of ``REASONS``; empty while it goes on."""
    waiting: str = ""
    """The code that it ends with if it waits too long; empty when it does not wait."""
    held: bool = False
    """Whether a queue holds it back on purpose."""
    why: str = ""
    """The cluster's own words."""
    exit_code: int | None = None
    ended: str = ""
    """RFC 3339 time of its container's end, which sorts as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The run's Job."""

    ending: str = ""
    """DONE, FAILED or TIMEOUT; empty while it goes on."""
    why: str = ""
    suspended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the cluster knew of a submission at one time."""

    job: JobState | None
    pods: tuple[PodState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a submission ended."""

    code: str
    pod: PodState | None = None
    """The pod that ended it; None where no pod did."""
    why: str = ""

    @property
    def reason(self) -> str:
        """Code and sentence, where, and the cluster's own words."""
        pod = self.pod
        where = f" (pod {pod.name}{f' on {pod.node}' if pod.node else ''})" if pod else ""
        why = (pod.why if pod else "") or self.why
        return f"{self.code}: {REASONS[self.code]}{where}{f': {why}' if why else ''}"


def read_objects(text: str) -> View:
    """Return the states of a submission from ``kubectl get jobs,pods --output=json``."""
    items = json.loads(text).get("items") or []
    jobs = [_job(item) for item in items if item["kind"] == "Job"]
    pods = sorted((_pod(item) for item in items if item["kind"] == "Pod"), key=lambda p: p.name)
    return View(job=jobs[0] if jobs else None, pods=tuple(pods))


def judge(job: JobState | None, pods: Iterable[PodState]) -> Ending | None:
    """Return how a submission ended, or None while it goes on.

    Args:
        job: As it is now; None when there is none.
        pods: Each as it was when it was seen last: those that are gone by now may say why.
    """
    seen = list(pods)
    if job is not None and job.ending == DONE:
        return Ending(code=DONE)
    hit = [pod for pod in seen if pod.ending in REASONS]
    if hit:
        first = min(hit, key=_order)
        return Ending(code=first.ending, pod=first)
    if job is None or not job.ending:
        return None
    if job.ending in REASONS:
        return Ending(code=job.ending, why=job.why)
    failed = [pod for pod in seen if pod.ending == FAILED]
    return Ending(code=FAILED, pod=min(failed, key=_order) if failed else None, why=job.why)


def waits(view: View) -> PodState | None:
    """Return a pod that waits, the one with least patience; None where none does, or a queue holds them on purpose."""
    if view.job is None or view.job.suspended:
        return None
    waiting = [pod for pod in view.pods if pod.waiting and not pod.held]
    return min(waiting, key=lambda pod: (pod.waiting not in PATIENCE_S, pod.name), default=None)


def _order(pod: PodState) -> tuple[bool, str, str]:
    """Sort pods by when they ended: the first to fail is why the others were ended."""
    return not pod.ended, pod.ended, pod.name


def _conditions(item: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {c["type"]: c for c in (item.get("status") or {}).get("conditions") or ()}


def _holds(condition: Mapping[str, Any] | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _said(found: Mapping[str, Any] | None) -> str:
    """Return the cluster's reason and message, as one line."""
    parts = [str((found or {}).get(name) or "") for name in ("reason", "message")]
    return " ".join(": ".join(filter(None, parts)).split())[:MESSAGE_CHARACTERS]


def _job(item: Mapping[str, Any]) -> JobState:
    conditions = _conditions(item)
    failed = conditions.get("Failed")
    if not _holds(failed):
        failed = conditions.get("FailureTarget")  # the job has failed, and its pods are still being ended
    suspended = _holds(conditions.get("Suspended")) or bool(item["spec"].get("suspend"))
    if _holds(conditions.get("Complete")):
        return JobState(ending=DONE)
    if failed is not None and _holds(failed):
        late = failed.get("reason") == "DeadlineExceeded"
        return JobState(ending=TIMEOUT if late else FAILED, why=_said(failed))
    return JobState(suspended=suspended)


def _pod(item: Mapping[str, Any]) -> PodState:
    metadata, status = item["metadata"], item.get("status") or {}
    conditions = _conditions(item)
    containers: list[Mapping[str, Any]] = status.get("containerStatuses") or [{}]
    container = containers[0].get("state") or {}
    terminated = container.get("terminated") or {}
    ending, why = _pod_ending(status, conditions, terminated)
    waiting, waits_for = ("", "") if ending else _pod_waiting(status, conditions, container)
    scheduled = conditions.get("PodScheduled") or {}
    return PodState(
        name=metadata["name"],
        node=(item.get("spec") or {}).get("nodeName") or "",
        ending=ending,
        waiting=waiting,
        held=scheduled.get("reason") == "SchedulingGated",
        why=why or waits_for,
        exit_code=terminated.get("exitCode"),
        ended=terminated.get("finishedAt") or "",
    )


def _pod_ending(
    status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]], terminated: Mapping[str, Any]
) -> tuple[str, str]:
    """Return how a pod ended, or will for certain, and the cluster's words; two empty texts while it goes on."""
    if status.get("phase") == "Succeeded":
        return DONE, ""
    reason = str(status.get("reason") or "")
    if code := _POD_REASONS.get(reason) or (UNSCHEDULABLE if reason.startswith("OutOf") else None):
        return code, _said(status)
    if terminated.get("reason") in _TERMINATED and terminated["reason"] != "ContainerStatusUnknown":
        return _TERMINATED[terminated["reason"]], _said(terminated)
    disruption = conditions.get("DisruptionTarget")
    if disruption is not None and _holds(disruption):
        return _DISRUPTIONS.get(str(disruption.get("reason")), EVICTED), _said(disruption)
    if terminated.get("reason") in _TERMINATED:
        return _TERMINATED[terminated["reason"]], _said(terminated)
    if status.get("phase") == "Failed":
        return FAILED, _said(terminated or status)
    return "", ""


def _pod_waiting(
    status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]], container: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the code of what a pod waits for, and the cluster's words; two empty texts for one that runs."""
    if status.get("phase") == "Running" and "waiting" not in container:
        return "", ""
    scheduled = conditions.get("PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return UNSCHEDULABLE, _said(scheduled)
    wait = container.get("waiting") or {}
    return _WAITING.get(str(wait.get("reason")), NOT_STARTED), _said(wait)
