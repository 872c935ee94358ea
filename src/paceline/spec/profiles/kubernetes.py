"""The part of a runner profile about Kubernetes: what is asked of the cluster, and where its pods find the job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Literal

from pydantic import Field

from paceline.base.redaction import names_a_secret
from paceline.base.units import parse_duration, parse_size
from paceline.spec.files.models import FileModel
from paceline.spec.profiles.cluster import IMAGE
from paceline.spec.profiles.container import USER

SIZES = ("memory_per_node", "shm_size", "tmp_size")
DURATIONS = ("time_limit", "pending_seconds", "poll_seconds", "unreachable_seconds")
RESOURCES = {"cuda": "nvidia.com/gpu", "rocm": "amd.com/gpu", "npu": "huawei.com/Ascend910"}
"""What vendors' device plugins call their devices."""
OWN_PREFIX = "paceline.io/"
_LABEL = r"[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?"
KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?(?=.{{1,63}}$){_LABEL}")
"""A qualified name: of a label, an annotation or a resource."""
VALUE = re.compile(rf"(?=.{{0,63}}$)({_LABEL})?")
DNS_LABEL = re.compile(r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DNS_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
QUANTITY = re.compile(r"\d+(\.\d+)?(m|[kMGTPE]i?)?")


class TolerationModel(FileModel):
    """A taint of nodes that pods put up with."""

    key: str | None = Field(None, description="The taint's key; default: every key.")
    operator: Literal["Equal", "Exists"] = Field("Equal", description="Exists: whatever the taint's value.")
    value: str | None = Field(None, description="The taint's value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="The taint's effect; default: every effect."
    )


class VolumeModel(FileModel):
    """The folder that the controller and all pods share, and in which results lie."""

    claim: str | None = Field(None, description="Persistent volume claim, one that many nodes may write.")
    host_path: str | None = Field(
        None, description="Folder that all nodes have at this path, in the place of a claim."
    )
    root: str | None = Field(
        None,
        description="Where the controller sees the volume's topmost folder; default: host_path.",
    )


class KubernetesModel(FileModel):
    """What a Kubernetes runner asks of the cluster."""

    image: str = Field(description="REGISTRY/NAME@sha256:….")
    volume: VolumeModel
    nodes: int = Field(1, ge=1, description="Pods, over which the ranks are spread evenly.")
    jobset: bool = Field(False, description="Ask for a JobSet (jobset.x-k8s.io) in the place of a Job.")
    namespace: str | None = Field(None, description="Namespace; default: that of kubectl's context.")
    service_account: str | None = Field(None, description="Service account; pods get no token of it.")
    devices_per_node: int | None = Field(None, ge=1, description="Devices of every pod.")
    device_resource: str | None = Field(
        None,
        description="What the devices are called; default: nvidia.com/gpu, amd.com/gpu, huawei.com/Ascend910.",
    )
    cpus_per_node: int | None = Field(None, ge=1, description="Cores of every pod; default: no limit.")
    memory_per_node: str | int | None = Field(
        None, description="Memory of every pod, such as 16GiB; default: no limit."
    )
    resources: dict[str, str | int] = Field(
        default_factory=dict, description="Further resources of every pod, such as rdma/hca: 1."
    )
    shm_size: str | int = Field(
        "1GiB", description="Shared memory, through which ranks talk; it counts as the pod's memory."
    )
    tmp_size: str | int = Field("1GiB", description="Room in /tmp; a pod that needs more is evicted.")
    node_selector: dict[str, str] = Field(default_factory=dict, description="Labels that nodes must have.")
    tolerations: list[TolerationModel] = Field(
        default_factory=list, description="Taints that pods put up with."
    )
    spread: bool = Field(True, description="Each pod on a node of its own.")
    labels: dict[str, str] = Field(
        default_factory=dict, description="Labels of the Job or JobSet, such as kueue.x-k8s.io/queue-name."
    )
    annotations: dict[str, str] = Field(
        default_factory=dict, description="Annotations of the pods, such as further networks."
    )
    priority_class: str | None = Field(None, description="Priority class of the pods.")
    runtime_class: str | None = Field(None, description="Runtime class of the pods, such as nvidia.")
    host_network: bool = Field(False, description="Use the nodes' own network, as RDMA may need.")
    capabilities: list[str] = Field(
        default_factory=list, description="Capabilities of the container, such as IPC_LOCK for RDMA."
    )
    pull: Literal["missing", "never"] = Field("missing", description="Whether nodes may fetch the image.")
    pull_secret: str | None = Field(
        None, description="Name of the cluster's secret with which nodes fetch the image."
    )
    user: str = Field("10001:10001", description="User and group in the pods, where root starts the run.")
    mount_path: str = Field("/job", description="Where pods see the job folder, and nothing else of it.")
    python: str = Field("python3", description="The image's Python with torch and numpy.")
    time_limit: str | float | None = Field(
        None,
        description="Longest time of the run; default: twice the plan's longest estimate, at least 10 min.",
    )
    pending_seconds: str | float = Field(
        "30min", description="How long pods may wait for nodes before the run gives up."
    )
    poll_seconds: str | float = Field("2s", description="Time between two questions to the cluster.")
    unreachable_seconds: str | float = Field(
        "600s", description="How long the cluster may fail to answer before the run gives up."
    )
    kubectl: list[str] = Field(
        default=["kubectl"], min_length=1, description="Command that talks to the cluster."
    )
    context: str | None = Field(None, description="Context of kubectl's configuration; default: its own.")


def kubernetes_problems(model: KubernetesModel, device: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with a section ``kubernetes`` beyond its types: the key, and why."""
    for names, parser in ((SIZES, parse_size), (DURATIONS, parse_duration)):
        for name in names:
            try:
                parser(getattr(model, name) or 0)
            except ValueError as error:
                yield (name,), str(error)
    if IMAGE.fullmatch(model.image) is None:
        yield ("image",), f"'{model.image}' is not pinned: give REGISTRY/NAME@sha256:…"
    if USER.fullmatch(model.user) is None:
        yield ("user",), f"'{model.user}' is not two numbers above 0, such as 10001:10001"
    if model.devices_per_node and device in ("cpu", "fake") and model.device_resource is None:
        yield ("devices_per_node",), f"the profile's device is '{device}', which needs none"
    if device in RESOURCES and model.devices_per_node is None:
        yield (), f"pods get no device of the kind '{device}': give devices_per_node"
    yield from _volume_problems(model)
    yield from _name_problems(model)
    for part in model.kubectl:
        if names_a_secret(part.partition("=")[0]):
            yield ("kubectl",), f"'{part}' looks like a secret, and profiles are copied into every record"


def _volume_problems(model: KubernetesModel) -> Iterator[tuple[tuple[str, ...], str]]:
    volume = model.volume
    if (volume.claim is None) == (volume.host_path is None):
        yield ("volume",), "give a claim or a host_path, one of them"
    if volume.claim is not None and volume.root is None:
        yield ("volume",), "a claim needs root: where the controller sees the volume's topmost folder"
    places: dict[tuple[str, ...], str | None] = {
        ("volume", "host_path"): volume.host_path,
        ("volume", "root"): volume.root,
        ("mount_path",): model.mount_path,
    }
    for key, path in places.items():
        if path is not None and (not PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts):
            yield key, f"'{path}' is no absolute path"


def _name_problems(model: KubernetesModel) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield names that no API server takes, so that they are told with their line and before a run."""
    if model.namespace is not None and DNS_LABEL.fullmatch(model.namespace) is None:
        yield ("namespace",), f"'{model.namespace}' is no DNS label (lower-case letters, digits and '-')"
    for name in ("service_account", "priority_class", "runtime_class", "pull_secret"):
        value = getattr(model, name)
        if value is not None and DNS_NAME.fullmatch(value) is None:
            yield (name,), f"'{value}' is no DNS name (lower-case letters, digits, '-' and '.')"
    if model.volume.claim is not None and DNS_NAME.fullmatch(model.volume.claim) is None:
        yield ("volume", "claim"), f"'{model.volume.claim}' is no DNS name"
    if model.device_resource is not None and KEY.fullmatch(model.device_resource) is None:
        yield ("device_resource",), f"'{model.device_resource}' is no name of a resource"
    for name in ("labels", "node_selector", "annotations", "resources"):
        for key, value in getattr(model, name).items():
            if KEY.fullmatch(key) is None:
                yield (name,), f"'{key}' is no qualified name, such as example.com/name"
            elif key.startswith(OWN_PREFIX) and name == "labels":
                yield (name,), f"'{key}' is the driver's own"
            elif name == "resources" and QUANTITY.fullmatch(str(value)) is None:
                yield (name,), f"'{value}' is no quantity, such as 1, 500m or 2Gi"
            elif name in ("labels", "node_selector") and VALUE.fullmatch(value) is None:
                yield (name,), f"'{value}' is no value of a label"
            elif name == "annotations" and names_a_secret(key.rpartition("/")[2]):
                yield (name,), f"'{key}' looks like a secret, and profiles are copied into every record"


def resolved_kubernetes(model: KubernetesModel) -> dict[str, Any]:
    """Return every setting in base units."""
    data = model.model_dump()
    for name in SIZES:
        value = data.pop(name)
        data[f"{name.removesuffix('_size')}_bytes"] = None if value is None else parse_size(value)
    for name in DURATIONS:
        value = data.pop(name)
        resolved = None if value is None else parse_duration(value)
        data[f"{name.removesuffix('_seconds')}_s"] = resolved
    volume = data["volume"]
    volume["root"] = volume["root"] or volume["host_path"]
    return data
