"""Batch scripts as text: every kind of request, word for word, and what bash and Slurm make of its parts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from paceline.drivers.hosts import host_commands
from paceline.drivers.slurm.script import (
    Request,
    apptainer_image,
    array_spec,
    enroot_image,
    render,
    time_text,
)
from paceline.spec import content
from paceline.spec.profiles.cluster import SlurmModel, resolved_slurm

GOLDENS = Path(__file__).parent / "goldens"
REWRITE = "PACELINE_WRITE_GOLDENS"
DIGEST = "sha256:" + "0123456789abcdef" * 4
IMAGE = f"registry.example:5000/team/paceline:1.2@{DIGEST}"
GPUS = {"nodes": 2, "gpus_per_node": 8, "cpus_per_node": 32, "exclusive": True, "requeue": True}
REQUESTS: dict[str, tuple[str, list[int], dict[str, Any]]] = {
    "slurm-plain": ("cpu", [0], {"python": "/opt/python/bin/python"}),
    "slurm-array": (
        "cpu",
        [0, 1, 2, 5],
        {
            "python": "python3.12",
            "nodes": 2,
            "array_at_once": 2,
            "partition": "short",
            "account": "ml group",
            "time_limit": "90min",
            "memory_per_node": "16GiB",
            "options": ["--mail-type=NONE"],
            "setup": ["module load python/3.12"],
        },
    ),
    "slurm-pyxis-digest": (
        "cuda",
        [0],
        {**GPUS, "container": {"engine": "pyxis", "image": IMAGE, "mounts": ["/data:/data"]}},
    ),
    "slurm-apptainer": (
        "cuda",
        [0],
        {**GPUS, "container": {"engine": "apptainer", "image": IMAGE, "mounts": ["/data:/data"]}},
    ),
    "slurm-apptainer-rocm": (
        "rocm",
        [0],
        {**GPUS, "container": {"engine": "apptainer", "image": "/images/paceline.sif"}},
    ),
}


def script(name: str, job: str = "/shared/results/jobs/0190") -> str:
    device, shares, settings = REQUESTS[name]
    request = Request(
        run_id="0190",
        job=PurePosixPath(job),
        settings=resolved_slurm(SlurmModel(**settings)),
        device=device,
        shares=shares,
        most_s=400,
    )
    return render(request, content.batch_template().read_text())


def check_golden(name: str, text: str) -> None:
    path = GOLDENS / name
    if os.environ.get(REWRITE):
        path.write_text(text)
    assert path.read_text() == text, f"to accept it: {REWRITE}=1 python -m pytest {__file__}"


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_the_expected_script(name: str) -> None:
    check_golden(f"{name}.sbatch", script(name))


@pytest.mark.parametrize("name", REQUESTS)
def test_what_the_script_starts_on_a_node_is_the_jobs_own_run_script(tmp_path: Path, name: str) -> None:
    """``srun`` and ``apptainer`` are programs that run their last words, as the real ones do in the end."""
    job = tmp_path / "a job"
    share = job / "shares" / "0"
    share.mkdir(parents=True)
    (share / "run.sh").write_text(
        'echo "$PACELINE_NODE of $PACELINE_NODES in $PACELINE_SESSION with $PYTHON"\n'
    )
    last_words = 'while [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n'
    for program in ("srun", "apptainer", "module"):
        path = tmp_path / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/bash\n" + (last_words if program != "module" else ""))
        path.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
        "SLURM_ARRAY_TASK_ID": "0",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NODEID": "1",
    }
    text = script(name, str(job))
    done = subprocess.run(["bash"], input=text, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("1 of 2 in 7-0 with "), done.stderr


@pytest.mark.parametrize(
    ("image", "enroot", "apptainer"),
    [
        (
            IMAGE,
            f"docker://registry.example:5000#team/paceline:{DIGEST}",
            "registry.example:5000/team/paceline",
        ),
        (f"team/paceline@{DIGEST}", f"docker://team/paceline:{DIGEST}", "team/paceline"),
        (f"localhost/p@{DIGEST}", f"docker://localhost#p:{DIGEST}", "localhost/p"),
        (f"debian:12@{DIGEST}", f"docker://debian:{DIGEST}", "debian"),
    ],
)
def test_images_are_named_as_each_engine_wants_them(image: str, enroot: str, apptainer: str) -> None:
    assert enroot_image(image) == enroot
    assert apptainer_image(image) == f"docker://{apptainer}@{DIGEST}"


@pytest.mark.parametrize(
    ("shares", "at_once", "text"),
    [([0], None, "0"), ([0, 1, 2], None, "0-2"), ([0, 2, 3, 7], 2, "0,2-3,7%2")],
)
def test_tasks_are_written_as_ranges(shares: list[int], at_once: int | None, text: str) -> None:
    assert array_spec(shares, at_once) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(1, "0-00:01:00"), (61, "0-00:02:00"), (5400, "0-01:30:00"), (90000, "1-01:00:00")]
)
def test_time_limits_are_whole_minutes_rounded_up(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_hosts_are_asked_over_ssh_with_quoted_words() -> None:
    hosts = {"names": ["a", "b"], "connect": ["ssh", "-o", "BatchMode=yes", "{host}"], "python": None}
    commands = host_commands(hosts, PurePosixPath("/shared/a job"), "s1", "/opt/my python")
    check_golden("hosts.json", json.dumps(commands, indent=1) + "\n")
