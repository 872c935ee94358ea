"""Requests to a Docker Engine, as data: what a run's containers and their network may do. No I/O.

A container gets the job folder and nothing else of the host: the code in it is mounted read-only over it, as is what
the controller writes. It has no network, or one that joins a run's own containers and reaches neither the host nor
anything behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from paceline.drivers.docker.devices import WAYS, Wanted, share
from paceline.drivers.machine.engine import CONTROLLER_LABEL, RUN_LABEL

INSIDE = "/job"
"""Where the job folder is in a container."""
EVENTS = "events-container.jsonl"
SBOM = "sbom.cdx.json"
READ_ONLY = ("engine", "baselines", "user", "plan.json", "job.json", "run.sh", EVENTS, f"artifacts/{SBOM}")
LEAST_LIMIT_S = 600.0
MEMORY_SHARE = 0.75
PERIOD_CORES = 1_000_000_000
SURVEY_MEMORY_BYTES = 1 << 29

ENTRY = """\
exec 3<&0 </dev/null
{ cat <&3 >/dev/null; kill -KILL -1; } &
exec 3<&-
exec /bin/sh ./run.sh
"""
"""The engine closes a container's input when the controller is gone, however it went; then everything here ends."""

SURVEY = """\
import glob, importlib.metadata, importlib.util, json, platform
read = lambda path: open(path, encoding="utf-8", errors="replace").read()
print(json.dumps({
    "python": platform.python_version(),
    "missing": [name for name in ("torch", "numpy") if importlib.util.find_spec(name) is None],
    "pypi": sorted({(d.metadata["Name"] or "?", d.version) for d in importlib.metadata.distributions()}),
    "os": "".join(read(p) for p in glob.glob("/etc/os-release")),
    "dpkg": "\\n\\n".join(read(p) for p in sorted(
        glob.glob("/var/lib/dpkg/status") + [p for p in glob.glob("/var/lib/dpkg/status.d/*") if ".md5sums" not in p])),
}))
"""
"""What an image says of its packages; nothing of it is imported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a run asks of the engine."""

    run_id: str
    job: PurePath
    """The job folder on the host."""
    image_id: str
    settings: Mapping[str, Any]
    """The profile's section ``docker``, resolved, without open limits."""
    read_only: tuple[str, ...]
    """What of the job folder the container cannot change."""
    user: str
    controller: str
    """Names the process that waits for the containers."""
    num_containers: int
    session: str
    wanted: Wanted | None = None
    way: str | None = None


def closed_limits(
    settings: Mapping[str, Any], num_containers: int, most_s: float, cores: int, memory_bytes: int
) -> dict[str, Any]:
    """Return the settings with every limit that the profile left open.

    Args:
        settings: The profile's section ``docker``, resolved.
        num_containers: Between which the host is shared.
        most_s: The plan's longest estimate.
        cores: Of the engine's host.
        memory_bytes: Of the engine's host.
    """
    open_limits = {
        "memory_bytes": int(memory_bytes * MEMORY_SHARE) // num_containers,
        "cpus": float(cores),
        "time_limit_s": max(2 * most_s, LEAST_LIMIT_S),
    }
    return {**settings, **{k: v for k, v in open_limits.items() if settings[k] is None}}


def container_name(run_id: str, node: int | str) -> str:
    """Return the name of a run's container."""
    return f"paceline-{run_id}-{node}"


def labels(request: Request) -> dict[str, str]:
    """Return what says whose a container or network is."""
    return {RUN_LABEL: request.run_id, CONTROLLER_LABEL: request.controller}


def network_options(request: Request) -> dict[str, Any] | None:
    """Return the run's own network; None where its ranks share a container and need none.

    The bridge has no address of the host's, so nothing that listens there can be reached from the containers.
    """
    if request.num_containers == 1:
        return None
    return {
        "name": f"paceline-{request.run_id}",
        "driver": "bridge",
        "internal": True,
        "options": {"com.docker.network.bridge.inhibit_ipv4": "true"},
        "labels": labels(request),
    }


def container_body(request: Request, node: int) -> dict[str, Any]:
    """Return the body of ``POST /containers/create`` for one of a run's containers."""
    several = request.num_containers > 1
    network = f"paceline-{request.run_id}" if several else "none"
    host: dict[str, Any] = {
        **_fence(request.settings),
        "NetworkMode": network,
        # Names of peers are known to the engine; what it does not know, it must not ask the host's name servers.
        "Dns": ["127.0.0.1"] if several else [],
        "DnsOptions": ["timeout:1", "attempts:1"] if several else [],
        "ShmSize": request.settings["shm_bytes"],
        "Mounts": _mounts(request),
    }
    environment = {
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "USER": "paceline",
        **({"PACELINE_NODE": str(node), "PACELINE_NODES": str(request.num_containers)} if several else {}),
        **({"PACELINE_SESSION": request.session} if several else {}),
    }
    if request.wanted is not None and request.way is not None:
        part = WAYS[request.wanted.device][request.way](share(request.wanted, node, request.num_containers))
        environment |= part.environment
        for key, value in part.host.items():
            host[key] = [*host.get(key, ()), *value] if isinstance(value, list) else value
    endpoints = {network: {"Aliases": [f"rank-{node}"]}} if several else {}
    return {
        "Image": request.image_id,
        "Hostname": f"rank-{node}",
        "User": request.user,
        "WorkingDir": INSIDE,
        "Entrypoint": ["/bin/sh", "-c", ENTRY],
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "Labels": labels(request),
        "AttachStdin": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": host,
        "NetworkingConfig": {"EndpointsConfig": endpoints},
    }


def survey_body(request: Request) -> dict[str, Any]:
    """Return the body for the container that says what is in the image."""
    settings = {**request.settings, "memory_bytes": SURVEY_MEMORY_BYTES, "tmp_bytes": 1 << 20}
    return {
        "Image": request.image_id,
        "User": request.user,
        "Entrypoint": ["python3", "-c", SURVEY],
        "Cmd": [],
        "Labels": labels(request),
        "HostConfig": {
            **_fence(settings),
            "NetworkMode": "none",
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "16m"}},
        },
    }


def _fence(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what every container lacks and what it may use at most."""
    limits = {
        "Memory": settings["memory_bytes"],
        "MemorySwap": settings["memory_bytes"],
        "NanoCpus": int(settings["cpus"] * PERIOD_CORES),
        "PidsLimit": settings["pids"],
        **({"CpusetCpus": settings["cpuset"]} if settings["cpuset"] else {}),
    }
    return {
        **limits,
        "Init": True,
        "Privileged": False,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "IpcMode": "private",
        "Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={settings['tmp_bytes']}"},
        "Ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "fsize", "Soft": settings["job_bytes"], "Hard": settings["job_bytes"]},
        ],
        # The controller reads what containers print; the engine keeps nothing of it on the host's disk.
        "LogConfig": {"Type": "none", "Config": {}},
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
    }


def _mounts(request: Request) -> list[dict[str, Any]]:
    own = [(str(request.job / name), f"{INSIDE}/{name}") for name in request.read_only]
    given = [tuple(mount.split(":", 1)) for mount in request.settings["mounts"]]
    return [
        _bind(str(request.job), INSIDE, read_only=False),
        *(_bind(source, target, read_only=True) for source, target in [*own, *given]),
    ]


def _bind(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": read_only,
        "BindOptions": {"Propagation": "rprivate"},
    }
