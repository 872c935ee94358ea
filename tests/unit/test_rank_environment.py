"""What ranks are given of the environment: all that vendors' runtimes need, and no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.drivers.job import RUN_SCRIPT
from paceline.families.kernels.api.problem import Problem, default_workers
from paceline.worker.machine.host import allowed_environment
from paceline.worker.processes.fork_server import AUTOLOAD, environment_of
from paceline.worker.processes.process import scrub_environment

NEEDED = {
    # CANN's set_env.sh, and what torch_npu reads
    "ASCEND_AICPU_PATH": "/usr/local/Ascend/latest",
    "ASCEND_HOME_PATH": "/usr/local/Ascend/latest",
    "ASCEND_OPP_PATH": "/usr/local/Ascend/latest/opp",
    "ASCEND_RT_VISIBLE_DEVICES": "0,1",
    "ASCEND_TOOLKIT_HOME": "/usr/local/Ascend/latest",
    "HCCL_IF_IP": "10.0.0.1",
    "TASK_QUEUE_ENABLE": "2",
    "TOOLCHAIN_HOME": "/usr/local/Ascend/latest/toolkit",
    # ROCm
    "HIP_VISIBLE_DEVICES": "0",
    "HSA_OVERRIDE_GFX_VERSION": "9.4.2",
    "MIOPEN_USER_DB_PATH": "/tmp/db",
    "ROCM_PATH": "/opt/rocm",
    "ROCR_VISIBLE_DEVICES": "0",
    # NVIDIA, its containers, and compilers
    "CC": "/opt/gcc/bin/gcc",
    "CUDA_HOME": "/usr/local/cuda",
    "CUDA_VISIBLE_DEVICES": "0",
    "CXX": "/opt/gcc/bin/g++",
    "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
    "LIBRARY_PATH": "/usr/local/cuda/lib64/stubs",
    "NCCL_DEBUG": "INFO",
    "NCCL_IB_PKEY": "1",
    "NVIDIA_TF32_OVERRIDE": "0",
    "NVIDIA_VISIBLE_DEVICES": "0",
    "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",
    "TORCH_CUDA_ARCH_LIST": "9.0a",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    "TRITON_CACHE_DIR": "/tmp/triton",
    "TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas",
    # networks
    "FI_PROVIDER": "efa",
    "UCX_TLS": "rc",
    "PYTHONPATH": "/usr/local/Ascend/latest/python/site-packages",
}
SECRETS = {
    "ASCEND_TOKEN": "S3cr3t",
    "AWS_SECRET_ACCESS_KEY": "S3cr3t",
    "CUDA_LICENSE_KEY": "S3cr3t",
    "DATABASE": "S3cr3t",
    "NVIDIA_API_KEY": "S3cr3t",
    "TRITON_AUTH": "S3cr3t",
    "WANDB_API_KEY": "S3cr3t",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Put a machine's variables in the place of this process's, and return those that a rank keeps."""
    given = NEEDED | SECRETS | {"HF_TOKEN": "kept until a rank takes it"}
    monkeypatch.setattr(os, "environ", dict(given))
    scrub_environment()
    return dict(os.environ)


def test_ranks_keep_what_vendors_runtimes_need(environment: dict[str, str]) -> None:
    assert {name: environment.get(name) for name in NEEDED} == NEEDED


def test_ranks_get_no_secret(environment: dict[str, str]) -> None:
    assert not set(SECRETS) & set(environment)
    assert "S3cr3t" not in str(allowed_environment(NEEDED | SECRETS))


@pytest.mark.parametrize("already", ["/cann/python/site-packages:/cann/opp", None])
def test_a_jobs_engine_stands_in_front_of_what_is_there(already: str | None, tmp_path: Path) -> None:
    script, python = tmp_path / "run.sh", tmp_path / "python"
    script.write_text(RUN_SCRIPT)
    python.write_text('#!/bin/sh\necho "$PYTHONPATH"\n')
    python.chmod(0o755)
    given = {"PATH": os.environ["PATH"], "PYTHON": str(python)} | ({"PYTHONPATH": already} if already else {})
    ended = subprocess.run(["/bin/sh", script], env=given, capture_output=True, text=True, check=True)
    # It looks for torch first, then launches.
    assert set(ended.stdout.splitlines()) == {f"{tmp_path}/engine" + (f":{already}" if already else "")}


NPUS: dict[str, Any] = {"runner": {"device": "npu", "env": {AUTOLOAD: "0"}}}


def test_a_job_on_npus_lets_torch_load_backends_whatever_its_environment_says() -> None:
    assert environment_of(NPUS)[AUTOLOAD] == "1"
    assert AUTOLOAD not in environment_of({"runner": {"device": "cpu", "env": {}}})


@pytest.mark.full  # two processes that import torch
def test_every_process_of_a_job_on_npus_finds_their_backend(tmp_path: Path) -> None:
    (tmp_path / "torch_npu.py").write_text("def load() -> None:\n    pass\n")
    facts = tmp_path / "torch_npu-2.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.0\n")
    (facts / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:load\n")
    look = "import json, sys, torch; print(json.dumps('torch_npu' in sys.modules))"

    def found(variables: dict[str, str]) -> bool:
        given = {**os.environ, AUTOLOAD: "0", "PYTHONPATH": str(tmp_path), **variables}
        ended = subprocess.run([sys.executable, "-c", look], env=given, capture_output=True, check=True)
        return bool(json.loads(ended.stdout))

    assert not found({}), "as the machine's user has it"
    assert found(environment_of(NPUS))


@pytest.mark.parametrize(
    ("properties", "workers"),
    [
        ({"multi_processor_count": 132}, 132),
        ({"multi_processor_count": 48, "cube_core_num": 24}, 24),
        ({"gpu_subslice_count": 64}, 64),
        ({"name": "a device that tells of none"}, 8),
    ],
)
def test_a_device_without_multiprocessors_has_workers(
    properties: dict[str, Any], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = SimpleNamespace(get_device_properties=lambda _: SimpleNamespace(**properties))
    monkeypatch.setattr(torch, "meta", module, raising=False)
    problem = Problem(operation="gemm", dtype=torch.float32, device=torch.device("meta"))
    assert default_workers(problem) == workers
