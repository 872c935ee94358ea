"""Facts about the host that ran a launch, from the standard library (and NVML's Python package where present)."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import socket
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from paceline.base.redaction import names_a_secret, redact
from paceline.worker.machine.cpu_quota import cpu_quota
from paceline.worker.machine.device import Device, cpu_model

ENVIRONMENT_PREFIXES = (
    "ACL_",
    "AMD_",
    "ASCEND_",
    "ATB_",
    "CUBLASLT_",
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "FI_",
    "GLOO_",
    "GOMP_",
    "GPU_",
    "HCCL_",
    "HIPBLASLT_",
    "HIP_",
    "HSA_",
    "KMP_",
    "MIOPEN_",
    "MKL_",
    "NCCL_",
    "NPU_",
    "NVIDIA_",
    "NVSHMEM_",
    "OMP_",
    "PACELINE_",
    "PYTORCH_",
    "RCCL_",
    "ROCBLAS_",
    "ROCM_",
    "ROCR_",
    "TENSILE_",
    "TORCHDYNAMO_",
    "TORCHINDUCTOR_",
    "TORCH_",
    "TRITON_",
    "UCX_",
)
"""Of PyTorch, its compilers, and the vendors' runtimes, libraries and networks: without them a device is not found, or
another code path runs. They reach ranks and stand in records."""
ENVIRONMENT_NAMES = (
    "COMBINED_ENABLE",
    "CPU_AFFINITY_CONF",
    "LANG",
    "MULTI_STREAM_MEMORY_REUSE",
    "PYTHONHASHSEED",
    "RANK_TABLE_FILE",
    "SLURM_JOB_ID",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NTASKS",
    "TASK_QUEUE_ENABLE",
    "TOOLCHAIN_HOME",
    "TZ",
)
_PARTITION_KEY = re.compile(r"_PKEY$")
"""An InfiniBand partition, which is no secret: ``NCCL_IB_PKEY``, ``UCX_IB_PKEY``."""
_GIBIBYTE = 1 << 30
DRIVERS = (
    (Path("/proc/driver/nvidia/version"), r"\b(\d{3}\.\d+(?:\.\d+)?)\b"),
    (Path("/usr/local/Ascend/driver/version.info"), r"^Version=(\S+)"),
)
"""Where drivers write their version, and how."""


def allowed_environment(environment: dict[str, str]) -> dict[str, str]:
    """Keep the variables that may enter a record; a name that smells of a secret never does."""
    kept = {}
    for name, value in sorted(environment.items()):
        named = name in ENVIRONMENT_NAMES or name.startswith(ENVIRONMENT_PREFIXES)
        if named and not names_a_secret(_PARTITION_KEY.sub("", name)):
            kept[name] = redact(value)
    return kept


def identify(device: Device) -> dict[str, Any]:
    """Return what makes up a host's class, which on a CPU needs no torch; absent facts are None."""
    described = device.describe()
    return {
        "host": host_facts(),
        "device": {"kind": device.kind, **described, "driver": _driver(described)},
    }


def describe_host(device: Device) -> dict[str, Any]:
    """Return what identifies this host's class, its software, its environment and its load; absent facts are None."""
    return {
        **identify(device),
        "packages": {
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "freeze": _freeze(),
        },
        "environment": allowed_environment(dict(os.environ)),
        "telemetry": {
            "load_average": list(os.getloadavg()),
            "throttle": None,
            "throttle_reason": "not readable with the standard library on this device",
            **device.telemetry(),
        },
        "flags": _flags(),
    }


def host_facts() -> dict[str, Any]:
    """Return what identifies this host and its class."""
    return {
        "cpu": cpu_model(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "quota_cores": None if (quota := cpu_quota()) is None else quota.cores,
        "memory_bytes": memory_bytes(),
        "memory_class_gib": _memory_class(),
        "kernel": platform.release(),
        "system": _operating_system(),
        "hostname_sha256": hashlib.sha256(socket.gethostname().encode()).hexdigest()[:16],
        "caches": _caches(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "container": _container(),
    }


def _flags() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "num_threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }


def memory_bytes() -> int | None:
    """Return this machine's memory; None where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return None
    return None


def _memory_class() -> int | None:
    """Round memory to the next power of two of GiB, so that small differences between hosts do not split a class."""
    size = memory_bytes()
    if size is None:
        return None
    gibibytes = 1
    while gibibytes * _GIBIBYTE < size:
        gibibytes *= 2
    return gibibytes


def _operating_system() -> str | None:
    try:
        text = Path("/etc/os-release").read_text()
    except OSError:
        return None
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', text, re.MULTILINE)
    return match.group(1) if match else None


def _caches() -> dict[str, str]:
    found: dict[str, str] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind = (
                (index / "level").read_text().strip(),
                (index / "type").read_text().strip(),
            )
            found[f"L{level} {kind}"] = (index / "size").read_text().strip()
        except OSError:
            continue
    return found


def _container() -> str | None:
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    return os.environ.get("container")


def _driver(described: Mapping[str, Any]) -> str | None:
    """Return the version of the accelerator's driver, from itself or from the kernel."""
    for settings in described.get("devices") or ():
        if settings.get("driver"):
            return str(settings["driver"])
    for path, pattern in DRIVERS:
        try:
            match = re.search(pattern, path.read_text(), re.MULTILINE)
        except OSError:
            continue
        if match:
            return match.group(1)
    return None


def _freeze() -> list[str]:
    names = {(d.metadata["Name"] or "?", d.version) for d in metadata.distributions()}
    return sorted(f"{name}=={version}" for name, version in names)
