"""Batch scripts for Slurm, as text: what is asked of the scheduler, and what runs in the allocation. No I/O."""

from __future__ import annotations

import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from jinja2 import Environment, StrictUndefined

from paceline.spec.profiles.cluster import IMAGE

LEAST_LIMIT_S = 600.0
LOGS = "slurm"
"""Folder of a job for what its tasks print."""
LAUNCHER = "'PACELINE_NODE=\"$SLURM_NODEID\" exec /bin/sh ./run.sh'"
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One submission."""

    run_id: str
    job: PurePath
    """The job folder, at the same place on all nodes."""
    settings: Mapping[str, Any]
    """The profile's section ``slurm``, resolved."""
    device: str
    shares: Sequence[int]
    """The shares of the job that are still to be done, one a task."""
    most_s: float
    """The plan's longest estimate."""


def render(request: Request, template: str) -> str:
    """Return the script that ``sbatch`` gets.

    Args:
        request: What to ask for.
        template: Text of ``runners/templates/job.sbatch.j2``.
    """
    # The output is a shell script, not HTML; whatever enters it is quoted for the shell.
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    settings = request.settings
    container = settings["container"]
    python = settings["python"] or ("python3" if container else sys.executable)
    return environment.from_string(template).render(
        run_id=request.run_id,
        job=request.job,
        num_tasks=len(request.shares),
        options=_options(request),
        setup=settings["setup"],
        shares=shlex.quote(str(request.job / "shares")),
        python=shlex.quote(python),
        step=" ".join(_step(request)),
        launcher=_launcher(request),
    )


def job_name(run_id: str) -> str:
    """Return the name under which a run's jobs are in the queue."""
    return f"paceline-{run_id}"


def array_spec(shares: Sequence[int], at_once: int | None) -> str:
    """Return task numbers as ``--array`` wants them, such as ``0-3,7%2``.

    Args:
        shares: Numbers of tasks, in order.
        at_once: The most that may run at the same time.
    """
    runs: list[list[int]] = []
    for share in shares:
        if runs and share == runs[-1][-1] + 1:
            runs[-1].append(share)
        else:
            runs.append([share])
    text = ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
    return text + (f"%{at_once}" if at_once else "")


def time_text(seconds: float) -> str:
    """Return a time limit as ``days-hours:minutes:seconds``; Slurm counts whole minutes."""
    minutes = max(math.ceil(seconds / 60), 1)
    return f"{minutes // 1440}-{minutes // 60 % 24:02d}:{minutes % 60:02d}:00"


def enroot_image(image: str) -> str:
    """Return an image as pyxis hands it to enroot: ``docker://REGISTRY#NAME:sha256:…``, or the file that it is.

    Enroot parts the registry from the name by ``#`` and takes the digest where a tag would be.
    """
    found = IMAGE.fullmatch(image)
    if found is None:
        return image
    registry, name = _registry_and_name(found["name"])
    return (
        f"docker://{registry}#{name}:{found['digest']}" if registry else f"docker://{name}:{found['digest']}"
    )


def apptainer_image(image: str) -> str:
    """Return an image as Apptainer names it: ``docker://REGISTRY/NAME@sha256:…``, or the file that it is."""
    found = IMAGE.fullmatch(image)
    if found is None:
        return image
    registry, name = _registry_and_name(found["name"])
    return f"docker://{registry + '/' if registry else ''}{name}@{found['digest']}"


def _registry_and_name(reference: str) -> tuple[str, str]:
    """Split an image's reference; a first part with a dot or a port is a registry. A tag is dropped: a digest rules."""
    first, slash, rest = reference.partition("/")
    is_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    registry, name = (first, rest) if is_registry else ("", reference)
    return registry, re.sub(r":[^/:]+$", "", name)


def _options(request: Request) -> list[str]:
    settings = request.settings
    limit_s = settings["time_limit_s"] or max(2 * request.most_s, LEAST_LIMIT_S)
    memory = settings["memory_per_node_bytes"]
    optional = {
        "partition": settings["partition"],
        "account": settings["account"],
        "qos": settings["qos"],
        "constraint": settings["constraint"],
        "gpus-per-node": settings["gpus_per_node"],
        "mem": f"{math.ceil(memory / MEBIBYTE)}M" if memory else None,
    }
    lines = [
        f"--job-name={job_name(request.run_id)}",
        f"--array={array_spec(request.shares, settings['array_at_once'])}",
        f"--chdir={_quoted(request.job)}",
        f"--nodes={settings['nodes']}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={settings['cpus_per_node']}",
        f"--time={time_text(limit_s)}",
        *(f"--{name}={_quoted(value)}" for name, value in optional.items() if value is not None),
        *(["--exclusive"] if settings["exclusive"] else []),
        "--requeue" if settings["requeue"] else "--no-requeue",
        "--open-mode=append",
        f"--output={_quoted(request.job / LOGS / '%A_%a.out')}",
        *settings["options"],
    ]
    return lines


def _quoted(value: object) -> str:
    """Return a value as sbatch reads it in a script's options, which know double quotes."""
    text = str(value)
    return f'"{text}"' if re.search(r"[^\w./:%&|,@+-]", text) else text


def _step(request: Request) -> list[str]:
    """Return the options of ``srun``: one task a node, and a container where the profile names one with pyxis."""
    settings = request.settings
    parts = [
        f"--ntasks={settings['nodes']}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={settings['cpus_per_node']}",
        "--kill-on-bad-exit=1",
        "--mpi=none",
    ]
    container = settings["container"]
    if container and container["engine"] == "pyxis":
        mounts = [f"{request.job}:{request.job}", *(f"{m}:ro" for m in container["mounts"])]
        parts += [
            f"--container-image={shlex.quote(enroot_image(container['image']))}",
            f"--container-mounts={shlex.quote(','.join(mounts))}",
            '--container-workdir="$PWD"',
            "--no-container-mount-home",
            "--no-container-remap-root",
        ]
    return parts


def _launcher(request: Request) -> str:
    container = request.settings["container"]
    shell = f"/bin/sh -c {LAUNCHER}"
    if not container or container["engine"] == "pyxis":
        return shell
    parts = ["apptainer", "exec", "--cleanenv", "--no-home"]
    parts += {"cuda": ["--nv"], "rocm": ["--rocm"]}.get(request.device, [])
    parts += ["--bind", shlex.quote(f"{request.job}:{request.job}")]
    for mount in container["mounts"]:
        parts += ["--bind", shlex.quote(f"{mount}:ro")]
    names = ("PACELINE_NODES", "PACELINE_SESSION", "SLURM_NODEID", "SLURM_JOB_ID", "PYTHON")
    passed = " ".join(f'--env {name}="${name}"' for name in names)
    image = shlex.quote(apptainer_image(container["image"]))
    inner = f'{" ".join(parts)} --pwd "$PWD" {passed} {image} /bin/sh -c "$0"'
    return f"/bin/sh -c {shlex.quote('exec ' + inner)} {LAUNCHER}"
