"""What this machine is: host, devices and how they are set, links between them, versions; looked at, never changed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOOK_S = 60.0
INFINIBAND = Path("/sys/class/infiniband")
TOPOLOGIES = (("nvidia-smi", "topo", "-m"), ("rocm-smi", "--showtopo"), ("npu-smi", "info", "-t", "topo"))
"""Vendors' commands that print how devices are joined; the first that is there is asked."""
MOST_LINES = 80
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_LOOK = """
import contextlib, json, platform
with contextlib.suppress(ImportError):
    import torch_npu
import numpy, torch
from paceline.base.errors import PacelineError
from paceline.worker.machine.device import kind_here, open_device
from paceline.worker.machine.host import identify
kind = kind_here()
versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": numpy.__version__}
versions["cuda"], versions["hip"] = torch.version.cuda, torch.version.hip
if kind in ("cuda", "rocm"):
    with contextlib.suppress(Exception):
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
try:
    found = identify(open_device(kind or "cpu"))
    print(json.dumps({"kind": kind, "count": torch.accelerator.device_count(), "versions": versions, **found}))
except PacelineError as error:
    print(json.dumps({"missing": str(error)}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """A machine as it is."""

    kind: str | None
    """Of its accelerators: cuda, rocm, npu, plugin; None without one."""
    count: int
    """Accelerators that torch sees."""
    host: Mapping[str, Any]
    device: Mapping[str, Any]
    """The accelerator, or else the processor, as its adapter describes it."""
    versions: Mapping[str, str | None]
    topology: str | None
    """What the vendor's tool prints of the links between devices."""
    networks: Mapping[str, str]
    """Name → state and rate of each port of a network card with remote memory access."""
    missing: str | None = None
    """Why nothing is known of devices."""


def look() -> Portrait:
    """Look at this machine, in a process of its own for what only torch knows."""
    found = _torch()
    return Portrait(
        kind=found.get("kind"),
        count=int(found.get("count", 0)) if found.get("kind") else 0,
        host=found.get("host", {}),
        device=found.get("device", {}),
        versions={**found.get("versions", {}), "triton": _version("triton")},
        topology=topology(),
        networks=networks(),
        missing=found.get("missing"),
    )


def _torch() -> dict[str, Any]:
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _LOOK], capture_output=True, text=True, timeout=LOOK_S, check=True
        )
        found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        return {"missing": " ".join(said) or "torch says nothing"}
    return found


def _version(package: str) -> str | None:
    from importlib import metadata  # noqa: PLC0415 - slow, and only here

    try:
        return metadata.version(package) if importlib.util.find_spec(package) else None
    except (metadata.PackageNotFoundError, ValueError):
        return None


def topology() -> str | None:
    """Return how devices are joined, as the vendor's tool prints it; None where no tool is, or it does not say."""
    for program, *arguments in TOPOLOGIES:
        path = shutil.which(program)
        if path is None:
            continue
        try:
            ended = subprocess.run(
                [path, *arguments], capture_output=True, text=True, timeout=LOOK_S, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        lines = _ESCAPES.sub("", ended.stdout).strip("\n").splitlines()
        return "\n".join(line.rstrip() for line in lines[:MOST_LINES])
    return None


def networks(folder: Path = INFINIBAND) -> dict[str, str]:
    """Return state and rate of each port that the kernel's InfiniBand subsystem shows (RoCE's and EFA's too)."""
    found = {}
    for port in sorted(folder.glob("*/ports/*")):
        facts = [_line(port / name) for name in ("state", "rate", "link_layer")]
        found[f"{port.parents[1].name}:{port.name}"] = ", ".join(f for f in facts if f)
    return found


def _line(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def clock_text(device: Mapping[str, Any]) -> str | None:
    """Say who may lock this machine's accelerators' clocks, as far as drivers tell; nobody tries."""
    told = [d.get("clocks_restricted") for d in device.get("devices") or ()]
    if not told or None in told:
        return None
    if any(told):
        return f"by root alone{', who asks' if os.geteuid() == 0 else ''}"
    return "by every user"
