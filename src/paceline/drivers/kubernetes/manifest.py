"""Manifests for Kubernetes, as data: the Job or JobSet of a run, and the Service by which its pods find each other.

A run is one Indexed Job: a pod a node, none of which is ever started again by the cluster, for what is measured anew is
decided by ``run --resume``. Pods see the job folder alone, under no account, and nothing secret stands in here. No I/O.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import yaml

from paceline.spec.profiles.kubernetes import OWN_PREFIX, RESOURCES

LEAST_LIMIT_S = 600.0
LOGS = "kubernetes"
"""Folder of a job for manifests and for what pods print."""
RUN_LABEL = f"{OWN_PREFIX}run"
SUBMISSION_LABEL = f"{OWN_PREFIX}submission"
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
KEPT_S = 7 * 86400
"""How long the cluster keeps an ended job whose controller never came back."""
REPLICATED = "w"
"""The JobSet's only group of Jobs; a letter, for the names of pods are made of it and have 63 characters."""
GRACE_S = 15
MAX_LABEL = 63
MAX_NAME = 50
"""Leaves room for what JobSets and pods add: ``-w-0-1234`` or ``-1234``, and ``-abcde``."""

SCRIPT = f"""\
trap 'exit 3' TERM INT
here={LOGS}/$PACELINE_SESSION
mkdir -p "$here"
: >"$here/node-$PACELINE_NODE"
# Pods start one by one, maybe minutes apart: the launchers' own patience begins when all are there.
until [ "$(ls "$here" | grep -c '^node-')" -ge "$PACELINE_NODES" ]; do
    [ ! -e stop ] || exit 3
    sleep 1
done
echo "the launcher's output is in $here/pod-$PACELINE_NODE.out of the job folder"
exec /bin/sh ./run.sh >>"$here/pod-$PACELINE_NODE.out" 2>&1
"""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as they are, for people read manifests, and nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # kubectl takes more plain words for numbers and truths than PyYAML does: 1e3, n and y are a float and two bools.
    style = "|" if "\n" in text else None if re.fullmatch(r"[A-Za-z/][\w./-]+", text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One submission."""

    run_id: str
    number: int
    """Submissions of the run before this one."""
    folder: PurePath
    """The job folder within the volume."""
    settings: Mapping[str, Any]
    """The profile's section ``kubernetes``, resolved."""
    device: str
    user: str
    """``UID:GID``."""
    most_s: float
    """The plan's longest estimate."""

    @property
    def name(self) -> str:
        """The name of all objects of the submission."""
        return dns_label(f"paceline-{self.run_id}-{self.number}", MAX_NAME)

    @property
    def host_stem(self) -> str:
        """What pods' host names begin with; the completion index follows."""
        return f"{self.name}-{REPLICATED}-0" if self.settings["jobset"] else self.name


def dns_label(text: str, limit: int = MAX_LABEL) -> str:
    """Return a name that is a DNS label: as it is where it can be, else shortened and made unique by a hash."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"p-{plain}".rstrip("-")
    if plain == text and len(plain) <= limit:
        return plain
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{plain[: limit - len(digest) - 1].rstrip('-')}-{digest}"


def labels(request: Request) -> dict[str, str]:
    """Return what says whose an object is."""
    return {
        "app.kubernetes.io/managed-by": "paceline",
        RUN_LABEL: request.run_id,
        SUBMISSION_LABEL: request.name,
    }


def manifest(request: Request) -> list[dict[str, Any]]:
    """Return the objects of a submission in the order in which they are made."""
    if request.settings["jobset"]:
        return [_jobset(request)]
    return [*([_service(request)] if request.settings["nodes"] > 1 else []), _job(request)]


def render(request: Request) -> str:
    """Return the manifest as YAML."""
    head = f"# Run {request.run_id} of Paceline: pods that execute the job folder {request.folder} of the volume.\n"
    return head + yaml.dump_all(
        manifest(request), Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True
    )


def _metadata(request: Request) -> dict[str, Any]:
    namespace = request.settings["namespace"]
    return {
        "name": request.name,
        **({"namespace": namespace} if namespace else {}),
        "labels": labels(request),
    }


def _top_metadata(request: Request) -> dict[str, Any]:
    """Return a Job's or JobSet's; queues read its labels, and would queue its pods once more for theirs."""
    found = _metadata(request)
    return {**found, "labels": {**request.settings["labels"], **found["labels"]}}


def _service(request: Request) -> dict[str, Any]:
    """Return the headless service that gives pods their names; also before they are ready, for they meet to get so."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(request),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {SUBMISSION_LABEL: request.name},
        },
    }


def _job(request: Request) -> dict[str, Any]:
    spec = {**_job_spec(request), "ttlSecondsAfterFinished": KEPT_S}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _top_metadata(request), "spec": spec}


def _jobset(request: Request) -> dict[str, Any]:
    template = {"metadata": {"labels": labels(request)}, "spec": _job_spec(request)}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _top_metadata(request),
        "spec": {
            "failurePolicy": {"maxRestarts": 0},
            "network": {
                "enableDNSHostnames": True,
                "publishNotReadyAddresses": True,
                "subdomain": request.name,
            },
            "replicatedJobs": [{"name": REPLICATED, "replicas": 1, "template": template}],
            "ttlSecondsAfterFinished": KEPT_S,
        },
    }


def _job_spec(request: Request) -> dict[str, Any]:
    settings = request.settings
    limit_s = settings["time_limit_s"] or max(2 * request.most_s, LEAST_LIMIT_S)
    annotations = settings["annotations"]
    metadata = {"labels": labels(request), **({"annotations": annotations} if annotations else {})}
    return {
        "completionMode": "Indexed",
        "completions": settings["nodes"],
        "parallelism": settings["nodes"],
        "backoffLimit": 0,
        # The cluster counts from the job's start, when pods may still wait for nodes.
        "activeDeadlineSeconds": math.ceil(limit_s + settings["pending_s"]),
        "template": {"metadata": metadata, "spec": _pod_spec(request)},
    }


def _pod_spec(request: Request) -> dict[str, Any]:
    settings = request.settings
    several = settings["nodes"] > 1
    optional = {
        "serviceAccountName": settings["service_account"],
        "priorityClassName": settings["priority_class"],
        "runtimeClassName": settings["runtime_class"],
        "nodeSelector": settings["node_selector"],
        "tolerations": [{k: v for k, v in each.items() if v is not None} for each in settings["tolerations"]],
        "imagePullSecrets": [{"name": settings["pull_secret"]}] if settings["pull_secret"] else [],
        "affinity": _apart(request) if several and settings["spread"] else None,
        # A JobSet names its pods' domain by itself.
        "subdomain": request.name if several and not settings["jobset"] else None,
        "hostNetwork": settings["host_network"],
        "dnsPolicy": "ClusterFirstWithHostNet" if settings["host_network"] else None,
    }
    user, group = (int(part) for part in request.user.split(":"))
    identity = {"runAsUser": user, "runAsGroup": group, **({"runAsNonRoot": True} if user else {})}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The launcher is not the first process then: signals reach it, and orphans of ranks are reaped.
        "shareProcessNamespace": True,
        **{name: value for name, value in optional.items() if value},
        "securityContext": {**identity, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(request)],
        "volumes": _volumes(settings),
    }


def _apart(request: Request) -> dict[str, Any]:
    term = {
        "labelSelector": {"matchLabels": {SUBMISSION_LABEL: request.name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _container(request: Request) -> dict[str, Any]:
    settings = request.settings
    capabilities = settings["capabilities"]
    return {
        "name": "launcher",
        "image": settings["image"],
        "imagePullPolicy": "Never" if settings["pull"] == "never" else "IfNotPresent",
        "command": ["/bin/sh", "-c", SCRIPT],
        "workingDir": settings["mount_path"],
        "env": _environment(request),
        "resources": _resources(request),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], **({"add": capabilities} if capabilities else {})},
        },
        "volumeMounts": [
            {"name": "job", "mountPath": settings["mount_path"], "subPath": str(request.folder)},
            {"name": "shm", "mountPath": "/dev/shm"},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _environment(request: Request) -> list[dict[str, Any]]:
    settings = request.settings
    several = settings["nodes"] > 1
    # The pod's own name in the service's domain, completed by the search path of the pod's resolver.
    host = f"{request.host_stem}-$(PACELINE_NODE).{request.name}"
    fixed = {
        "PACELINE_NODES": str(settings["nodes"]),
        "PACELINE_SESSION": request.name,
        **({"PACELINE_HOST": host} if several else {}),
        "PYTHON": settings["python"],
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "USER": "paceline",
    }
    index = {"name": "PACELINE_NODE", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}}
    return [index, *({"name": name, "value": value} for name, value in fixed.items())]


def _resources(request: Request) -> dict[str, Any]:
    """Return what a pod gets: as much asked for as allowed, so that it is evicted last and cores can be its own."""
    settings = request.settings
    device = settings["device_resource"] or RESOURCES.get(request.device)
    amounts = {
        "cpu": settings["cpus_per_node"],
        "memory": settings["memory_per_node_bytes"],
        **({device: settings["devices_per_node"]} if device else {}),
        **settings["resources"],
    }
    given = {name: str(amount) for name, amount in amounts.items() if amount is not None}
    return {"requests": given, "limits": dict(given)} if given else {}


def _volumes(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    volume = settings["volume"]
    shared = (
        {"persistentVolumeClaim": {"claimName": volume["claim"]}}
        if volume["claim"]
        else {"hostPath": {"path": volume["host_path"], "type": "Directory"}}
    )
    memory = {"medium": "Memory", "sizeLimit": str(settings["shm_bytes"])}
    return [
        {"name": "job", **shared},
        {"name": "shm", "emptyDir": memory},
        {"name": "tmp", "emptyDir": {"sizeLimit": str(settings["tmp_bytes"])}},
    ]
