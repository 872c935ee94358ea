"""A cluster of two nodes in this process, for the real kubectl: an API server, controllers, and nodes that run pods.

Objects are checked against Kubernetes' own schemas, strictly, before they are kept. Pods are processes of this machine
with their own host name, ``/etc/hosts`` and mounts; the user of a pod is not changed, since the Python of the checkout
may be readable for root only. What is not here: images, resource limits, networks, quotas.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import shlex
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kubernetes_validate

SCHEMAS = "1.33"
NODES = ("n0", "n1")
INDEX = "batch.kubernetes.io/job-completion-index"
NAMES_LATE_S = 1.0
"""How long after pods have started their names are known."""
Object = dict[str, Any]
Hook = Callable[[Object], None]


def now() -> str:
    """Return the time as the API server writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Object:
    """Return a condition of a Job or pod."""
    found = {"type": kind, "status": status, "lastTransitionTime": now()}
    return {**found, **({"reason": reason} if reason else {}), **({"message": message} if message else {})}


class RefusedError(Exception):
    """What the API server answers with a code of 400 or more."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class Cluster:
    """Objects, and what happens to them."""

    def __init__(self, folder: Path, *, has_jobsets: bool = True) -> None:
        self.folder = folder
        self.has_jobsets = has_jobsets
        self.namespaces = {"default", "ml"}
        self.devices: dict[str, int] = {}
        """Devices of every node, by resource."""
        self.images: set[str] = set()
        self.before_start: Hook = lambda pod: None
        """Called for each pod that is about to be started; raises to keep it from that."""
        self.changed = threading.Condition(threading.RLock())
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._versions = itertools.count(1)
        self._stopping = threading.Event()
        self._loop = threading.Thread(target=self._run, daemon=True)
        self._loop.start()

    # -- the API server's part
    def create(self, kind: str, namespace: str, body: Object) -> Object:
        """Check and keep an object."""
        if namespace not in self.namespaces:
            raise RefusedError(404, "NotFound", f'namespaces "{namespace}" not found')
        if kind != "JobSet":
            try:
                kubernetes_validate.validate(body, SCHEMAS, strict=True)
            except kubernetes_validate.ValidationError as error:
                raise RefusedError(422, "Invalid", f"{kind} is invalid: {error}") from error
        with self.changed:
            key = (kind, namespace, body["metadata"]["name"])
            if key in self.objects:
                raise RefusedError(409, "AlreadyExists", f'{kind} "{key[2]}" already exists')
            made = copy.deepcopy(body)
            made["metadata"] |= {
                "namespace": namespace,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": now(),
                "resourceVersion": str(next(self._versions)),
            }
            made.setdefault("status", {})
            self.objects[key] = made
            if kind == "JobSet":
                self._make_jobset(made)
            elif kind == "Job":
                self._make_pods(made)
            self.changed.notify_all()
            return made

    def list(
        self, kind: str, namespace: str, labels: dict[str, str], name: str | None = None
    ) -> list[Object]:
        """Return objects by their labels or name."""
        with self.changed:
            return [
                copy.deepcopy(found)
                for (k, n, own), found in sorted(self.objects.items())
                if (k, n) == (kind, namespace)
                and name in (None, own)
                and labels.items() <= found["metadata"].get("labels", {}).items()
            ]

    def delete(self, kind: str, namespace: str, name: str) -> Object:
        """Begin to delete an object with what belongs to it."""
        with self.changed:
            found = self.objects.get((kind, namespace, name))
            if found is None:
                raise RefusedError(404, "NotFound", f'{kind} "{name}" not found')
            found["metadata"]["deletionTimestamp"] = now()
        threading.Thread(target=self._delete, args=(kind, namespace, name), daemon=True).start()
        return found

    def gone(self, kind: str, namespace: str, name: str, limit_s: float) -> bool:
        """Wait until there is no such object."""
        with self.changed:
            return self.changed.wait_for(lambda: (kind, namespace, name) not in self.objects, limit_s)

    # -- what tests do to it
    def pods(self) -> list[Object]:
        """Return all pods as they are."""
        return [found for (kind, _, _), found in sorted(self.objects.items()) if kind == "Pod"]

    def wait_for(self, wanted: Callable[[], object], limit_s: float = 60.0) -> None:
        """Poll until a condition holds."""
        deadline = time.monotonic() + limit_s
        while not wanted():
            assert time.monotonic() < deadline, json.dumps(self.pods(), indent=1)
            time.sleep(0.05)

    def end_pod(self, name: str, change: Hook) -> None:
        """Kill a pod's processes as a node does, and let a hook write why."""
        with self.changed:
            (pod,) = (p for p in self.pods() if p["metadata"]["name"] == name)
            pod["held"] = True
        self._kill(name)
        with self.changed:
            change(pod)
            del pod["held"]

    def stop(self) -> None:
        """End every process and the controllers."""
        self._stopping.set()
        self._loop.join()
        for name in list(self.processes):
            self._kill(name)

    # -- controllers
    def _make_jobset(self, made: Object) -> None:
        name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        network = made["spec"]["network"]
        assert network["enableDNSHostnames"]
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": network["subdomain"]},
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": network["publishNotReadyAddresses"],
                "selector": {"jobset.sigs.k8s.io/jobset-name": name},
            },
        }
        self.create("Service", namespace, service)
        for group in made["spec"]["replicatedJobs"]:
            job = {"apiVersion": "batch/v1", "kind": "Job", **copy.deepcopy(group["template"])}
            own = {"jobset.sigs.k8s.io/jobset-name": name}
            job["metadata"] = {
                "name": f"{name}-{group['name']}-0",
                "labels": job["metadata"]["labels"] | own,
            }
            template = job["spec"]["template"]
            template["metadata"]["labels"] |= own
            template["spec"]["subdomain"] = network["subdomain"]
            self.create("Job", namespace, job)

    def _make_pods(self, job: Object) -> None:
        spec, name = job["spec"], job["metadata"]["name"]
        assert spec["completionMode"] == "Indexed"
        assert spec["parallelism"] == spec["completions"]
        for index in range(spec["completions"]):
            pod = copy.deepcopy(spec["template"])
            host = f"{name}-{index}"
            assert len(host) <= 63
            pod |= {"apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending"}}
            pod["metadata"] |= {
                "name": f"{host}-{uuid.uuid4().hex[:5]}",
                "annotations": {**pod["metadata"].get("annotations", {}), INDEX: str(index)},
            }
            pod["metadata"]["labels"] |= {"job-name": name}
            pod["spec"]["hostname"] = host
            made = self.create("Pod", job["metadata"]["namespace"], pod)
            made["owner"] = name

    def _run(self) -> None:
        while not self._stopping.wait(0.05):
            with self.changed:
                for pod in self.pods():
                    if not pod.get("held"):
                        self._advance(pod)
                for (kind, _, _), job in list(self.objects.items()):
                    if kind == "Job":
                        self._conclude(job)
                self._publish_names()
                self.changed.notify_all()

    def _advance(self, pod: Object) -> None:
        status, name = pod["status"], pod["metadata"]["name"]
        if status["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]:
            self._start(pod)
        elif status["phase"] == "Running" and (code := self.processes[name].poll()) is not None:
            exit_code = code if code >= 0 else 128 - code
            ended = {"exitCode": exit_code, "reason": "Error" if code else "Completed", "finishedAt": now()}
            status["containerStatuses"] = [{"name": "launcher", "state": {"terminated": ended}}]
            status["phase"] = "Failed" if code else "Succeeded"

    def _start(self, pod: Object) -> None:
        node, problem = self._place(pod)
        if node is None:
            scheduled = condition("PodScheduled", "False", "Unschedulable", problem)
            pod["status"]["conditions"] = [scheduled]
            return
        pod["spec"]["nodeName"] = node
        pod["status"]["conditions"] = [condition("PodScheduled", "True")]
        image = pod["spec"]["containers"][0]["image"]
        if image not in self.images:
            words = f'Back-off pulling image "{image}": ErrImagePull: not found'
            waiting = {"reason": "ImagePullBackOff", "message": words}
            pod["status"]["containerStatuses"] = [{"name": "launcher", "state": {"waiting": waiting}}]
            return
        self.before_start(pod)
        self.processes[pod["metadata"]["name"]] = self._process(pod)
        pod["status"] |= {"phase": "Running", "startTime": now()}
        running = {"running": {"startedAt": now()}}
        pod["status"]["containerStatuses"] = [{"name": "launcher", "state": running}]

    def _place(self, pod: Object) -> tuple[str | None, str]:
        asked = pod["spec"]["containers"][0]["resources"].get("limits", {})
        for resource, amount in asked.items():
            if "/" in resource and self.devices.get(resource, 0) < int(amount):
                return None, f"0/2 nodes are available: 2 Insufficient {resource}."
        apart = "podAntiAffinity" in pod["spec"].get("affinity", {})
        taken = {p["spec"].get("nodeName") for p in self.pods() if p["status"]["phase"] == "Running"}
        free = [n for n in NODES if not (apart and n in taken)]
        return (free[0], "") if free else (None, "0/2 nodes are available: pod anti-affinity rules.")

    def _conclude(self, job: Object) -> None:
        owned = [p for p in self.pods() if p.get("owner") == job["metadata"]["name"]]
        phases = [p["status"]["phase"] for p in owned]
        if job["status"].get("conditions") or "deletionTimestamp" in job["metadata"]:
            return
        age_s = time.time() - datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp()
        if phases and set(phases) == {"Succeeded"}:
            job["status"]["conditions"] = [condition("Complete", "True", "CompletionsReached")]
        elif "Failed" in phases or len(phases) < job["spec"]["completions"]:
            words = "Job has reached the specified backoff limit"
            job["status"]["conditions"] = [condition("Failed", "True", "BackoffLimitExceeded", words)]
        elif age_s > job["spec"]["activeDeadlineSeconds"]:
            words = "Job was active longer than specified deadline"
            job["status"]["conditions"] = [condition("Failed", "True", "DeadlineExceeded", words)]
        else:
            return
        for pod in owned:
            if pod["status"]["phase"] in ("Pending", "Running"):
                self.delete("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _delete(self, kind: str, namespace: str, name: str) -> None:
        for owned_kind, owned in self._owned(kind, namespace, name):
            self._delete(owned_kind, namespace, owned)
        if kind == "Pod":
            self._kill(name)
        with self.changed:
            self.objects.pop((kind, namespace, name), None)
            self.changed.notify_all()

    def _owned(self, kind: str, namespace: str, name: str) -> list[tuple[str, str]]:
        with self.changed:
            if kind == "JobSet":
                own = {"jobset.sigs.k8s.io/jobset-name": name}
                jobs = [("Job", j["metadata"]["name"]) for j in self.list("Job", namespace, own)]
                return [
                    *jobs,
                    ("Service", self.objects[kind, namespace, name]["spec"]["network"]["subdomain"]),
                ]
            owned = [p for p in self.pods() if kind == "Job" and p.get("owner") == name]
            return [("Pod", pod["metadata"]["name"]) for pod in owned]

    # -- the nodes' part
    def _publish_names(self) -> None:
        """Write the names that headless services give to pods, a little after the pods have started."""
        lines = ["127.0.0.1 localhost"]
        services = [o for (kind, _, _), o in self.objects.items() if kind == "Service"]
        for pod in self.pods():
            for service in services:
                fits = service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
                named = service["metadata"]["name"] == pod["spec"].get("subdomain")
                early = service["spec"]["publishNotReadyAddresses"] and service["spec"]["clusterIP"] == "None"
                begun = pod["status"].get("startTime")
                if fits and named and early and begun:
                    age_s = time.time() - datetime.fromisoformat(begun).timestamp()
                    if age_s > NAMES_LATE_S:
                        lines.append(f"127.0.0.1 {pod['spec']['hostname']}.{pod['spec']['subdomain']}")
        text = "\n".join(lines) + "\n"
        path = self.folder / "hosts"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)  # in place: pods have this very file bound over their own

    def _process(self, pod: Object) -> subprocess.Popen[bytes]:
        spec = pod["spec"]
        (container,) = spec["containers"]
        variables = {"PATH": os.environ["PATH"], "FAKE_CLUSTER": str(self.folder)}
        for each in container["env"]:
            value = each.get("value")
            if value is None:
                path = each["valueFrom"]["fieldRef"]["fieldPath"]
                assert path == f"metadata.annotations['{INDEX}']"
                value = pod["metadata"]["annotations"][INDEX]
            for known, text in variables.items():
                value = value.replace(f"$({known})", text)
            variables[each["name"]] = value
        self._publish_names()
        words = [
            "mount --make-rprivate /",
            f"hostname {shlex.quote(spec['hostname'])}",
            f"mount --bind {shlex.quote(str(self.folder / 'hosts'))} /etc/hosts",
            *self._mounts(spec),
            f"cd {shlex.quote(container['workingDir'])}",
            f"exec {shlex.join(container['command'])}",
        ]
        with (self.folder / f"{pod['metadata']['name']}.log").open("ab") as output:
            return subprocess.Popen(
                ["unshare", "--mount", "--uts", "/bin/sh", "-ec", "\n".join(words)],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _mounts(self, spec: Object) -> Iterator[str]:
        """Yield shell lines that mount a pod's volumes; not its /tmp, under which the tests' own Python may lie."""
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for mount in spec["containers"][0]["volumeMounts"]:
            volume = volumes[mount["name"]]
            if "emptyDir" in volume:
                if volume["emptyDir"].get("medium") == "Memory":
                    size = volume["emptyDir"]["sizeLimit"]
                    yield f"mount -t tmpfs -o size={size} shm {shlex.quote(mount['mountPath'])}"
                continue
            root = volume["hostPath"]["path"] if "hostPath" in volume else self._claim(volume)
            source = Path(root, mount["subPath"])
            yield f"mount --bind {shlex.quote(str(source))} {shlex.quote(mount['mountPath'])}"

    def _claim(self, volume: Object) -> str:
        return str(self.folder / "claims" / volume["persistentVolumeClaim"]["claimName"])

    def _kill(self, name: str) -> None:
        process = self.processes.get(name)
        if process is None or process.poll() is not None:
            return
        for number, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            try:
                os.killpg(process.pid, number)
                process.wait(patience_s)
            except (subprocess.TimeoutExpired, ProcessLookupError):
                continue
            return
