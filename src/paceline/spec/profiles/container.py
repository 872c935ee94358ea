"""The part of a runner profile about containers: which image, what it may use, and which devices it sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from paceline.base.units import parse_duration, parse_size
from paceline.spec.files.models import FileModel
from paceline.spec.profiles.cluster import IMAGE

SIZES = ("memory", "shm_size", "tmp_size", "job_size")
DURATIONS = ("time_limit", "unreachable_seconds")
IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}")
LOCAL_IMAGE = re.compile(r"[a-z0-9]+([._/:-]+[a-zA-Z0-9_.-]+)*")
USER = re.compile(r"([1-9]\d*):([1-9]\d*)")
CDI_KIND = re.compile(r"[\w.-]+/[\w.-]+")
Way = Literal["auto", "cdi", "request", "runtime", "files"]


class DevicesModel(FileModel):
    """Which accelerators containers see, and how the engine is asked for them."""

    way: Way = Field(
        "auto", description="auto: CDI where the engine knows the devices, else the vendor's own way."
    )
    ids: list[str | int] | None = Field(None, description="Devices by number or name; default: all.")
    count: int | None = Field(None, ge=1, description="So many devices, whichever they are.")
    kind: str | None = Field(None, description="CDI kind; default: nvidia.com/gpu, amd.com/gpu.")


class DockerModel(FileModel):
    """What a Docker runner asks of the engine."""

    image: str = Field(description="REGISTRY/NAME@sha256:…, the id of an image, or the name of a local one.")
    containers: Literal["one", "one-a-rank"] = Field(
        "one",
        description="Ranks as processes of one container, or a container for each on a network of their own.",
    )
    pull: Literal["missing", "never"] = Field(
        "missing", description="Whether an image that is named by digest may be fetched from its registry."
    )
    memory: str | int | None = Field(
        None, description="Memory of one container; default: three quarters of the host's, shared evenly."
    )
    cpus: float | None = Field(None, gt=0, description="Cores' worth of time of one container; default: all.")
    cpuset: str | None = Field(None, description="The cores themselves, such as 0-3; default: any.")
    pids: int = Field(512, ge=16, description="Processes and threads of one container.")
    shm_size: str | int = Field(
        "1GiB", description="Shared memory, through which ranks of accelerators talk."
    )
    tmp_size: str | int = Field("1GiB", description="Room in /tmp, which lies in memory.")
    job_size: str | int = Field("8GiB", description="What a run may write into its job folder.")
    time_limit: str | float | None = Field(
        None,
        description="Longest time of the run; default: twice the plan's longest estimate, at least 10 min.",
    )
    mounts: list[str] = Field(
        default_factory=list, description="Folders of the host, read-only, as HOST:INSIDE."
    )
    user: str = Field(
        "10001:10001", description="User and group in the container, where root starts the run."
    )
    devices: DevicesModel | None = Field(
        None, description="Accelerators; default: all of the profile's kind."
    )
    unreachable_seconds: str | float = Field(
        "60s", description="How long the engine may fail to answer before the run gives up."
    )


def docker_problems(model: DockerModel, device: str, max_ranks: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with a section ``docker`` beyond its types: the key, and why."""
    for names, parser in ((SIZES, parse_size), (DURATIONS, parse_duration)):
        for name in names:
            try:
                parser(getattr(model, name) or 0)
            except ValueError as error:
                yield (name,), str(error)
    known = (
        IMAGE.fullmatch(model.image) or IMAGE_ID.fullmatch(model.image) or LOCAL_IMAGE.fullmatch(model.image)
    )
    if known is None:
        yield ("image",), f"'{model.image}' names no image: give NAME@sha256:…, sha256:… or NAME:TAG"
    if USER.fullmatch(model.user) is None:
        yield ("user",), f"'{model.user}' is not two numbers above 0, such as 10001:10001"
    for mount in model.mounts:
        if re.fullmatch(r"/[^:]*:/[^:]+", mount) is None:
            yield ("mounts",), f"'{mount}' is not HOST:INSIDE with two absolute paths"
    yield from _device_problems(model, device, max_ranks)


def _device_problems(
    model: DockerModel, device: str, max_ranks: int
) -> Iterator[tuple[tuple[str, ...], str]]:
    wanted = model.devices
    if wanted and device in ("cpu", "fake"):
        yield ("devices",), f"the profile's device is '{device}', which needs none"
        return
    if wanted and wanted.ids is not None and wanted.count is not None:
        yield ("devices",), "give ids or count, not both"
    if wanted and wanted.kind is not None and CDI_KIND.fullmatch(wanted.kind) is None:
        yield ("devices", "kind"), f"'{wanted.kind}' is not VENDOR/CLASS"
    if device in ("cpu", "fake"):
        return
    named = (wanted.count or len(wanted.ids or ())) if wanted else 0
    if device == "npu" and not named:
        yield ("devices",), "NPUs are given to containers by number: ids or count"
    if model.containers == "one-a-rank" and named < max_ranks:
        yield ("devices",), f"every rank's container gets one device: ids or count of at least {max_ranks}"


def resolved_docker(model: DockerModel) -> dict[str, Any]:
    """Return every setting in base units."""
    data = model.model_dump()
    for name in SIZES:
        value = data.pop(name)
        data[f"{name.removesuffix('_size')}_bytes"] = None if value is None else parse_size(value)
    limit = data.pop("time_limit")
    data["time_limit_s"] = None if limit is None else parse_duration(limit)
    data["unreachable_s"] = parse_duration(data.pop("unreachable_seconds"))
    return data
