"""What the driver does with answers of kubectl that a cluster on one machine does not give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.base.errors import InfrastructureError, PrerequisiteError
from paceline.drivers.kubernetes.driver import TICKET, Kubectl, KubernetesDriver, KubernetesExecution
from paceline.drivers.kubernetes.states import JobState, PodState, View
from paceline.spec.profiles.kubernetes import KubernetesModel, resolved_kubernetes

IMAGE = "registry.example/p@sha256:" + "0" * 64
CASE = {"case_id": "c0", "label": "ring"}
PLAN = {"blocks": [{"block": "b0", "protocol": {"launches": 1}, "cases": [CASE]}], "groups": []}
TICKET_OF_ONE = {"name": "paceline-x-0", "number": 0, "closed": False}


def settings(**changed: Any) -> dict[str, Any]:
    given = {"image": IMAGE, "volume": {"host_path": "/shared"}, "poll_seconds": 0, **changed}
    return resolved_kubernetes(KubernetesModel(**given))


class Answers(Kubectl):
    """A kubectl that says what it was given, the last for ever; what is an error is raised."""

    def __init__(self, *views: View | InfrastructureError, deletes: bool = True) -> None:
        super().__init__(settings())
        self._views, self._deletes = list(views), deletes

    def look(self, name: str) -> View:
        found = self._views.pop(0) if len(self._views) > 1 else self._views[0]
        if isinstance(found, InfrastructureError):
            raise found
        return found

    def delete(self, manifest: Path) -> None:
        if not self._deletes:
            raise InfrastructureError("kubectl delete failed: timed out waiting for the condition")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "results" / "jobs" / "x"
    (folder / "kubernetes").mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(PLAN))
    return folder


def reasons(job: Path) -> list[str]:
    """Return the reasons of the cases that the driver gave up."""
    events = map(json.loads, (job / "events-scheduler.jsonl").read_text().splitlines())
    return [e["reason"] for e in events if e["event"] == "case_failed"]


def closed(job: Path) -> bool:
    return bool((job / TICKET).exists() and json.loads((job / TICKET).read_text())["closed"])


def test_a_pod_on_a_lost_node_that_cannot_be_deleted_does_not_keep_the_run_from_its_record(job: Path) -> None:
    lost = PodState(name="p", node="node-a", ending="NODE_LOST", why="Taint manager")
    kubectl = Answers(View(job=JobState(), pods=(lost,)), deletes=False)
    execution = KubernetesExecution(job, settings(), TICKET_OF_ONE, kubectl)
    assert execution.poll() == 0
    execution.stop()
    assert reasons(job) == ["NODE_LOST: the node of a pod was lost (pod p on node-a): Taint manager"]
    assert closed(job)


def test_why_a_pod_ended_is_remembered_when_it_is_gone(job: Path) -> None:
    preempted = PodState(name="p", node="n", ending="PREEMPTED", why="preempting")
    failed = JobState(ending="FAILED", why="BackoffLimitExceeded")
    execution = KubernetesExecution(job, settings(), TICKET_OF_ONE, Answers(View(job=failed, pods=())))
    execution._pods["p"] = preempted
    assert execution.poll() == 0
    assert reasons(job) == ["PREEMPTED: a pod had to make room for others (pod p on n): preempting"]


def test_a_job_that_is_not_there_yet_is_waited_for(job: Path) -> None:
    """A JobSet makes its Job a little later."""
    nothing, done = View(job=None, pods=()), View(job=JobState(ending="COMPLETED"), pods=())
    execution = KubernetesExecution(job, settings(), TICKET_OF_ONE, Answers(nothing, nothing, done))
    assert [execution.poll() for _ in range(3)] == [None, None, 0]
    gone = KubernetesExecution(job, settings(), TICKET_OF_ONE, Answers(nothing))
    assert [gone.poll() for _ in range(3)] == [None, None, 0]
    assert reasons(job)[0].startswith("LOST: ")


def test_a_cluster_that_does_not_answer_is_asked_again_and_then_left_alone(job: Path) -> None:
    away = InfrastructureError("kubectl get failed: connection refused")
    done = View(job=JobState(ending="COMPLETED"), pods=())
    patient = KubernetesExecution(job, settings(), TICKET_OF_ONE, Answers(away, away, done))
    assert [patient.poll() for _ in range(3)] == [None, None, 0]
    hasty = KubernetesExecution(job, settings(unreachable_seconds=0), TICKET_OF_ONE, Answers(away))
    with pytest.raises(InfrastructureError, match="the pods go on; fix: paceline run --resume x"):
        hasty.poll()
    hasty.stop()
    assert not closed(job)


def test_a_job_that_cannot_be_deleted_at_ctrl_c_stays_open(job: Path) -> None:
    kubectl = Answers(View(job=JobState(), pods=()), deletes=False)
    execution = KubernetesExecution(job, settings(), TICKET_OF_ONE, kubectl)
    assert execution.poll() is None
    with pytest.raises(InfrastructureError, match="timed out"):
        execution.stop()
    assert (job / "stop").exists()
    assert not closed(job)


def test_without_kubectl_the_missing_program_is_named(job: Path) -> None:
    plan = {**PLAN, "runner": {"kubernetes": settings(kubectl=["kubectl-of-ours"])}}
    (job / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(PrerequisiteError, match="there is no kubectl-of-ours here"):
        KubernetesDriver().start(job)
