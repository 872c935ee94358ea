"""The part of a runner profile about several nodes: what is asked of Slurm, or which hosts are used over ssh."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from paceline.base.counting import number_of
from paceline.base.redaction import names_a_secret
from paceline.base.units import parse_duration, parse_size
from paceline.spec.files.models import FileModel

IMAGE = re.compile(r"(?P<name>[^@\s]+)@(?P<digest>sha256:[0-9a-f]{64})")
"""An image of a registry by its digest; a tag before it is allowed and says nothing."""


class ImageModel(FileModel):
    """The container of a Slurm job."""

    engine: Literal["pyxis", "apptainer"] = Field(description="What starts it on the nodes.")
    image: str = Field(description="REGISTRY/NAME@sha256:…, or the path of a .sqsh or .sif file.")
    mounts: list[str] = Field(
        default_factory=list, description="Folders of the nodes, read-only, as HOST:INSIDE."
    )


class SlurmModel(FileModel):
    """What a Slurm runner asks of the cluster."""

    nodes: int = Field(1, ge=1, description="Nodes of one allocation; the ranks are spread evenly over them.")
    partition: str | None = Field(None, description="Partition; default: the cluster's own.")
    account: str | None = Field(None, description="Account that pays.")
    qos: str | None = Field(None, description="Quality of service.")
    constraint: str | None = Field(None, description="Features that nodes must have.")
    exclusive: bool = Field(
        False,
        description="Share the nodes with nobody, so that others' work is no noise; needed where tasks run at once.",
    )
    cpus_per_node: int = Field(1, ge=1, description="Cores on every node.")
    gpus_per_node: int | None = Field(None, ge=1, description="GPUs on every node.")
    memory_per_node: str | int | None = Field(None, description="Memory on every node, such as 16GiB.")
    time_limit: str | float | None = Field(
        None,
        description="Longest time of one task; default: twice the plan's longest estimate, at least 10 min.",
    )
    array_tasks: int = Field(
        1, ge=1, description="Tasks of a job array, between which the blocks are divided."
    )
    array_at_once: int | None = Field(None, ge=1, description="Tasks that may run at the same time.")
    requeue: bool = Field(False, description="After preemption or a lost node, queue again and do the rest.")
    max_requeues: int = Field(3, ge=0, description="Requeues of one task, after which it is given up.")
    pending_seconds: str | float | None = Field(
        None,
        description="How long a task may wait for nodes before it is given up; default: as long as it takes.",
    )
    poll_seconds: str | float = Field("5s", description="Time between two questions to the scheduler.")
    unreachable_seconds: str | float = Field(
        "600s", description="How long the scheduler may fail to answer before the run gives up."
    )
    options: list[str] = Field(default_factory=list, description="Further options of sbatch, as they are.")
    setup: list[str] = Field(
        default_factory=list, description="Shell lines before the job, such as module load."
    )
    python: str | None = Field(
        None, description="Python with torch and numpy; default: the controller's, or python3 in a container."
    )
    container: ImageModel | None = Field(
        None, description="Container to run in; default: the nodes themselves."
    )


class HostsModel(FileModel):
    """Hosts that are used without a scheduler; the results folder has the same path on all of them."""

    names: list[str] = Field(description="The hosts, the first of which is the head.", min_length=1)
    connect: list[str] = Field(
        default=["ssh", "-o", "BatchMode=yes", "{host}"],
        description="Command that runs a shell line, given as its last argument, on {host}.",
    )
    python: str | None = Field(None, description="Python with torch and numpy; default: the controller's.")


def slurm_problems(model: SlurmModel) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what is wrong with a Slurm section beyond its types: the key, and why."""
    checks: list[tuple[str, Any, Any]] = [
        ("time_limit", parse_duration, model.time_limit or 0),
        ("poll_seconds", parse_duration, model.poll_seconds),
        ("unreachable_seconds", parse_duration, model.unreachable_seconds),
        ("pending_seconds", parse_duration, model.pending_seconds or 0),
        ("memory_per_node", parse_size, model.memory_per_node or 0),
    ]
    for name, parser, value in checks:
        try:
            parser(value)
        except ValueError as error:
            yield (name,), str(error)
    for name in ("options", "setup"):
        for line in getattr(model, name):
            if "\n" in line or "\r" in line:
                yield (name,), "an entry is one line"
            for variable in re.findall(r"\b([A-Za-z_]\w*)=", line):
                if names_a_secret(variable):
                    yield (
                        (name,),
                        f"'{variable}' looks like a secret, and profiles are copied into every record",
                    )
    yield from _tasks_together(model)
    image = model.container.image if model.container else None
    if image is not None and not image.endswith((".sqsh", ".sif")) and IMAGE.fullmatch(image) is None:
        yield ("container", "image"), f"'{image}' is not pinned: give REGISTRY/NAME@sha256:… or an image file"


def _tasks_together(model: SlurmModel) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield why tasks of one array could be put on the same nodes at the same time, where they measure each other."""
    shares = re.compile(r"--(oversubscribe|share|overcommit)\b|-[sO]\b")
    for option in model.options:
        if shares.match(option):
            yield ("options",), f"'{option}' lets others compute on the nodes, and what they do is measured"
    whole = model.exclusive or "--exclusive" in model.options
    together = min(model.array_tasks, model.array_at_once or model.array_tasks)
    if together > 1 and not whole:
        yield (
            ("array_at_once",) if model.array_at_once else ("array_tasks",),
            f"{number_of(together, 'task')} may run at the same time and share nodes, where they measure each "
            "other; expected "
            "exclusive: true, or array_at_once: 1",
        )


def resolved_slurm(model: SlurmModel) -> dict[str, Any]:
    """Return every setting in base units."""
    data = model.model_dump()
    for name in ("poll_seconds", "unreachable_seconds"):
        data[name.replace("seconds", "s")] = parse_duration(data.pop(name))
    limit, memory, pending = (data.pop(k) for k in ("time_limit", "memory_per_node", "pending_seconds"))
    data["pending_s"] = None if pending is None else parse_duration(pending)
    data["time_limit_s"] = None if limit is None else parse_duration(limit)
    data["memory_per_node_bytes"] = None if memory is None else parse_size(memory)
    return data
