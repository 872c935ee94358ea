"""The Kubernetes driver: a Job of a pod a node, followed by asking the cluster through kubectl.

The manifest is written and noted before it is sent, so a controller that dies is followed by another
(``run --resume``) that takes the Job over wherever it is. Results come out through the shared volume, in the job
folder. An ending that is no technique's fault becomes an ``infrastructure`` failure of every case that it left without
a result.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from paceline.base.errors import InfrastructureError, PrerequisiteError, UserError
from paceline.base.files.events import read_events
from paceline.base.redaction import redact
from paceline.drivers.containers import hand_over
from paceline.drivers.kubernetes.manifest import LOGS, SUBMISSION_LABEL, Request, render
from paceline.drivers.kubernetes.states import (
    DONE,
    LOST,
    PATIENCE_S,
    REASONS,
    Ending,
    PodState,
    View,
    judge,
    read_objects,
    waits,
)
from paceline.drivers.shares import append_event, fail_missing, missing_cases
from paceline.records.store.storage import resume_command

TICKET = "kubernetes.json"
EVENTS = "events-scheduler.jsonl"
STOP_FILE = "stop"
COMMAND_LIMIT_S = 60.0
DELETE_LIMIT_S = 120.0
MAX_ABSENT = 3
"""Answers without the Job after which it counts as gone: a JobSet makes its Job a little later."""
LOG_TAIL_BYTES = 3000


class Kubectl:
    """The one caller of kubectl."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._command = list(settings["kubectl"])
        if settings["context"]:
            self._command.append(f"--context={settings['context']}")
        if settings["namespace"]:
            self._command.append(f"--namespace={settings['namespace']}")

    def ask(self, *arguments: str, limit_s: float = COMMAND_LIMIT_S) -> str:
        """Run one of kubectl's commands and return what it printed.

        Raises:
            InfrastructureError: It failed or did not answer.
        """
        command = [*self._command, *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired as error:
            raise InfrastructureError(
                f"kubectl {arguments[0]} did not answer within {limit_s:g} s"
            ) from error
        if done.returncode:
            said = redact(done.stderr.strip() or done.stdout.strip())
            raise InfrastructureError(f"kubectl {arguments[0]} failed: {said}")
        return done.stdout

    def look(self, name: str) -> View:
        """Return what the cluster knows of a submission."""
        return read_objects(
            self.ask("get", "jobs,pods", f"--selector={SUBMISSION_LABEL}={name}", "--output=json")
        )

    def delete(self, manifest: Path) -> None:
        """Delete all that a manifest made, and wait until its pods are gone."""
        options = ("--ignore-not-found", "--cascade=foreground", "--wait", f"--timeout={DELETE_LIMIT_S:g}s")
        self.ask("delete", f"--filename={manifest}", *options, limit_s=DELETE_LIMIT_S + COMMAND_LIMIT_S)


class KubernetesDriver:
    """Runs a job folder as an Indexed Job or a JobSet."""

    def start(self, job: Path) -> KubernetesExecution:
        """Submit what is missing, or take over what an earlier controller submitted.

        Raises:
            PrerequisiteError: This machine has no kubectl.
            UserError: The job folder is not in the volume.
            InfrastructureError: The cluster refused the job or does not answer.
        """
        plan = json.loads((job / "plan.json").read_text())
        settings = plan["runner"]["kubernetes"]
        if shutil.which(settings["kubectl"][0]) is None:
            raise PrerequisiteError(
                f"the runner needs Kubernetes, and there is no {settings['kubectl'][0]} here",
                fix="run where kubectl reaches the cluster (on Debian: apt-get install kubernetes-client)",
            )
        folder = folder_in_volume(job, settings["volume"]["root"])
        kubectl = Kubectl(settings)
        ticket = _open_ticket(job, kubectl) or _submit(job, folder, plan, kubectl)
        return KubernetesExecution(job, settings, ticket, kubectl)


def folder_in_volume(job: PurePath, root: str) -> PurePath:
    """Return the job folder's place within the volume.

    Raises:
        UserError: It is elsewhere, where no pod could see it.
    """
    try:
        return job.relative_to(root)
    except ValueError:
        raise UserError(
            f"the job folder is not in the volume that the pods share, {root}",
            where=str(job),
            fix=f"--results={root}/results",
        ) from None


def _manifest(job: Path, number: int) -> Path:
    return job / LOGS / f"job-{number}.yaml"


def _open_ticket(job: Path, kubectl: Kubectl) -> dict[str, Any] | None:
    """Return what a controller that died had submitted and the cluster still knows."""
    try:
        ticket: dict[str, Any] = json.loads((job / TICKET).read_text())
    except (OSError, ValueError):
        return None
    if ticket["closed"]:
        return None
    if kubectl.look(ticket["name"]).job is not None:
        _tell_submitted(job, ticket, kubectl)
        return ticket
    kubectl.delete(_manifest(job, ticket["number"]))
    return None


def _write_ticket(job: Path, ticket: dict[str, Any]) -> dict[str, Any]:
    temporary = job / f".{TICKET}"
    temporary.write_text(json.dumps(ticket))
    temporary.replace(job / TICKET)
    return ticket


def _submit(job: Path, folder: PurePath, plan: Mapping[str, Any], kubectl: Kubectl) -> dict[str, Any]:
    if not missing_cases(job):
        return {"name": None, "number": None, "closed": True}
    (job / STOP_FILE).unlink(missing_ok=True)
    (job / LOGS).mkdir(exist_ok=True)
    settings = plan["runner"]["kubernetes"]
    request = Request(
        run_id=json.loads((job / "job.json").read_text())["run_id"],
        number=len(list((job / LOGS).glob("job-*.yaml"))),
        folder=folder,
        settings=settings,
        device=plan["runner"]["device"],
        user=f"{os.getuid()}:{os.getgid()}" if os.getuid() else settings["user"],
        most_s=plan["estimate"]["most_s"],
    )
    path = _manifest(job, request.number)
    path.write_text(render(request))
    hand_over(job, request.user)
    ticket = _write_ticket(job, {"name": request.name, "number": request.number, "closed": False})
    try:
        kubectl.ask("create", f"--filename={path}")
    except InfrastructureError:
        # The Service may be there already, or all of it where only the answer was lost.
        with suppress(InfrastructureError):
            kubectl.delete(path)
            _write_ticket(job, {**ticket, "closed": True})
        raise
    _tell_submitted(job, ticket, kubectl)
    return ticket


def _tell_submitted(job: Path, ticket: Mapping[str, Any], kubectl: Kubectl) -> None:
    """Note what was submitted, unless that was done already; a controller may have died just before."""
    told = read_events(job / EVENTS, 0)[0] if (job / EVENTS).exists() else []
    if not any(e["event"] == "submitted" and e["job_id"] == ticket["name"] for e in told):
        text = redact(_manifest(job, ticket["number"]).read_text())
        _tell(job, "submitted", job_id=ticket["name"], shares=[0], version=_version(kubectl), script=text)


def _version(kubectl: Kubectl) -> str:
    """Return the cluster's version."""
    with suppress(InfrastructureError, ValueError, KeyError):
        server = json.loads(kubectl.ask("version", "--output=json"))["serverVersion"]
        return f"Kubernetes {server['gitVersion']}"
    return "Kubernetes"


def _tell(job: Path, event: str, **data: Any) -> None:
    append_event(job / EVENTS, {"event": event, "time_s": time.time(), **data})


class KubernetesExecution:
    """A Job, followed until it has ended."""

    def __init__(
        self, job: Path, settings: Mapping[str, Any], ticket: Mapping[str, Any], kubectl: Kubectl
    ) -> None:
        self._job = job
        self._settings = settings
        self._ticket = dict(ticket)
        self._kubectl = kubectl
        self._pods: dict[str, PodState] = {}
        """Each pod as it was seen last; those that the cluster deletes say no more."""
        self._num_absent = 0
        self._waits: tuple[str, float] | None = None
        """Code of what a pod waits for, and since when."""
        self._code: int | None = 0 if ticket["closed"] else None
        self._abandoned = False
        """True when the cluster does not answer: pods go on, and the ticket stays open for another controller."""
        self._next_s = 0.0
        self._answered_s = time.monotonic()

    def poll(self) -> int | None:
        """Ask the cluster when it is time; return the launcher's exit code once the Job has ended.

        Raises:
            InfrastructureError: The cluster has not answered for longer than the profile allows.
        """
        now = time.monotonic()
        if self._code is None and now >= self._next_s:
            self._next_s = now + self._settings["poll_s"]
            try:
                self._look()
                self._answered_s = time.monotonic()
            except InfrastructureError as error:
                if time.monotonic() - self._answered_s > self._settings["unreachable_s"]:
                    self._abandoned = True
                    again = resume_command(self._job.name, self._job.parents[1])
                    raise InfrastructureError(f"{error}\n  the pods go on; fix: {again}") from error
        return self._code

    def stop(self) -> None:
        """Delete the Job with its pods, wait until they are gone, and close the ticket."""
        if self._abandoned or self._ticket["closed"]:
            return
        if self._code is None:
            (self._job / STOP_FILE).touch()
            _tell(self._job, "task_end", job_id=self._ticket["name"], state="CANCELLED", shares=[0])
        try:
            self._kubectl.delete(_manifest(self._job, self._ticket["number"]))
        except InfrastructureError:
            # A pod on a lost node cannot be taken away before the node is; that must not cost what was measured.
            if self._code is None:
                raise
        self._ticket = _write_ticket(self._job, {**self._ticket, "closed": True})

    def log(self) -> str:
        """Return the end of what the latest launchers printed."""
        paths = sorted((self._job / LOGS).glob("*/pod-*.out"), key=lambda p: p.stat().st_mtime)[-3:]
        return "\n".join(p.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip() for p in paths)

    def _look(self) -> None:
        view = self._kubectl.look(self._ticket["name"])
        for pod in view.pods:
            # What ended a pod stays its reason, whatever the cluster makes of it while it is taken away.
            seen = self._pods.get(pod.name)
            if seen is None or seen.ending not in REASONS:
                self._pods[pod.name] = pod
        ending = judge(view.job, self._pods.values()) or self._gone(view) or self._too_late(view)
        if ending is not None:
            self._settle(ending)

    def _gone(self, view: View) -> Ending | None:
        """Return the end of a Job that the cluster does not know; its results may say that it ended well."""
        self._num_absent = 0 if view.job is not None else self._num_absent + 1
        if self._num_absent < MAX_ABSENT:
            return None
        return Ending(code=LOST if missing_cases(self._job) else DONE)

    def _too_late(self, view: View) -> Ending | None:
        """Return the end of a Job whose pods have waited for too long."""
        pod, now = waits(view), time.monotonic()
        if pod is None:
            self._waits = None
            return None
        if self._waits is None or self._waits[0] != pod.waiting:
            since = now if self._waits is None or pod.waiting in PATIENCE_S else self._waits[1]
            self._waits = (pod.waiting, since)
        limit_s = min(PATIENCE_S.get(pod.waiting, float("inf")), self._settings["pending_s"])
        return Ending(code=pod.waiting, pod=pod) if now - self._waits[1] > limit_s else None

    def _settle(self, ending: Ending) -> None:
        """Note how the Job ended; what it left without a result fails for that reason."""
        pod = ending.pod
        exit_code = pod.exit_code if pod else None
        nodes = ",".join(sorted({p.node for p in self._pods.values() if p.node}))
        facts = {
            "exit_code": exit_code,
            "nodes": nodes,
            "reason": redact(ending.why or (pod.why if pod else "")),
        }
        _tell(self._job, "task_end", job_id=self._ticket["name"], shares=[0], state=ending.code, **facts)
        self._code = 0 if ending.code in (DONE, *REASONS) else exit_code or 1
        if ending.code not in REASONS:
            return
        (self._job / STOP_FILE).touch()
        fail_missing(self._job, self._job / EVENTS, redact(ending.reason))
