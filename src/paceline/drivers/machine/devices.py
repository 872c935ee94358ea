"""How many accelerators ranks will find on this machine, counted without torch: by files, tools and the environment.

Counting is for planning alone: what a rank finds is what its torch shows it (``worker.machine.device``). Where nothing
can be counted, nothing is limited.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from paceline.spec.profiles.profile import RunnerProfile

HERE = frozenset({"local", "debug"})
"""Drivers whose ranks see this machine's devices."""
LOOK_S = 10
VISIBLE: Mapping[str, tuple[str, ...]] = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES",),
}
"""Variables by which each vendor's runtime is told to show fewer; HIP reads NVIDIA's as well."""
HIDDEN_INDEX = re.compile(r"-\d+")


def on_this_machine(profile: RunnerProfile) -> RunnerProfile:
    """Return a profile that knows how many devices its ranks find here, where they run here and need one each."""
    model = profile.model
    if model.driver not in HERE or model.device not in VISIBLE or model.share_devices:
        return profile
    # None at all is left to the rank, which says what is missing and how to get it.
    found = count_devices(model.device, {**os.environ, **model.env}) or None
    return replace(profile, num_devices=found)


def count_devices(
    device: str,
    environment: Mapping[str, str],
    *,
    root: Path = Path("/"),
    listing: Callable[[], str | None] | None = None,
) -> int | None:
    """Return how many devices of a kind a process sees here; None where that cannot be told.

    Args:
        device: cuda, rocm or npu.
        environment: Of the ranks.
        root: Where the kernel's files lie.
        listing: Gives what ``nvidia-smi -L`` prints, or None where there is no such tool.
    """
    if device == "cuda":
        found = _nvidia(root, (listing or list_nvidia)())
    elif device == "rocm":
        found = _amd(root)
    else:
        found = len(_numbered(root / "dev", "davinci")) or None
    if found is None:
        return None
    for name in VISIBLE[device]:
        if name in environment:
            found = min(found, _shown(environment[name], found))
    return found


def list_nvidia() -> str | None:
    """Return what ``nvidia-smi -L`` prints, a device a line; None where there is no such tool, or it fails."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        ended = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=LOOK_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return ended.stdout


def _nvidia(root: Path, listing: str | None) -> int | None:
    if listing is not None and (cards := re.findall(r"^GPU \d+:", listing, re.MULTILINE)):
        # A process sees one slice at most, and no whole card beside it.
        return 1 if re.search(r"^\s+MIG ", listing, re.MULTILINE) else len(cards)
    # A container may have the files of some cards only, while the driver's own folder names all.
    return len(_numbered(root / "dev", "nvidia")) or None


def _amd(root: Path) -> int | None:
    """Count the nodes of the kernel's compute topology that have SIMD units: others are processors."""
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    if not nodes.is_dir():
        return None
    return sum(_has_units(node / "properties") for node in nodes.iterdir()) or None


def _has_units(properties: Path) -> bool:
    try:
        found = re.search(r"^simd_count (\d+)$", properties.read_text(), re.MULTILINE)
    except OSError:  # a container may not look at devices that it was not given
        return False
    return found is not None and int(found[1]) > 0


def _numbered(folder: Path, name: str) -> list[Path]:
    return [p for p in folder.glob(f"{name}[0-9]*") if p.name.removeprefix(name).isdigit()]


def _shown(text: str, present: int) -> int:
    """Return how many devices a list of numbers, ranges or names shows: up to the first that is none."""
    shown = 0
    for entry in text.split(","):
        part = entry.strip()
        first, dash, last = part.partition("-")
        if dash and first.isdigit() and last.isdigit():
            shown += len(range(int(first), min(int(last), present - 1) + 1))
        elif not part or HIDDEN_INDEX.fullmatch(part) or (part.isdigit() and int(part) >= present):
            break
        else:
            shown += 1
            if part.startswith("MIG-"):
                break
    return shown
