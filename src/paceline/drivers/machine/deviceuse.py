"""What is held and done on the accelerators that a run could use, by whatever vendors' tools are here.

NVIDIA's and Ascend's tools are asked, AMD's devices are read from sysfs. A run sees some of them only where variables
say so: what others compute on the rest does not disturb it. A processor's own graphics is no device of a run on another
vendor's accelerators.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ASK_S = 10.0
NVIDIA_QUERY = ("index", "uuid", "memory.used", "utilization.gpu")
DRM = Path("/sys/class/drm")
KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What is held and done on one accelerator."""

    name: str
    memory_bytes: int | None
    busy: float | None
    """Share of the last moments in which something ran; None where the vendor's tool does not say."""
    uuid: str | None = None
    """As variables may name it; it enters no record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """How the devices of one vendor are found, and which variables choose among them, one after another."""

    kind: str
    uses: Callable[[], tuple[list[DeviceUse], str | None]]
    chosen_by: tuple[tuple[str, ...], ...]
    """Names of a variable; the first that is set counts."""


def device_uses(kind: str | None, environment: Mapping[str, str]) -> tuple[list[DeviceUse], str | None]:
    """Return what is held on the devices that a run would see, or why nothing is known.

    Args:
        kind: The runner's device; on others than accelerators all vendors are asked.
        environment: Of the ranks.
    """
    kinds = {v.kind for v in VENDORS}
    found: list[DeviceUse] = []
    absent: list[str] = []
    for vendor in VENDORS:
        if kind in kinds and vendor.kind != kind:
            continue
        uses, why = vendor.uses()
        for names in vendor.chosen_by:
            uses = visible(uses, next((environment[n] for n in names if n in environment), None))
        found += [replace(use, uuid=None) for use in uses]
        absent += [why] if why else []
    return found, None if found else "; ".join(absent) or "variables hide all devices"


def visible(uses: Sequence[DeviceUse], value: str | None) -> list[DeviceUse]:
    """Return the devices that a variable names, by numbers or beginnings of UUIDs, in its order; all where it is unset.

    What follows a name that fits none is not visible either (CUDA Programming Guide, *CUDA Environment Variables*).
    """
    if value is None:
        return list(uses)
    chosen: list[DeviceUse] = []
    for name in (part.strip() for part in value.split(",")):
        device = _called(uses, name)
        if device is None:
            break
        chosen += device
    return chosen


def _called(uses: Sequence[DeviceUse], name: str) -> list[DeviceUse] | None:
    span = re.fullmatch(r"(\d+)-(\d+)", name)
    if span:
        return list(uses[int(span[1]) : int(span[2]) + 1])
    if name.isdigit():
        return [uses[int(name)]] if int(name) < len(uses) else None
    # A slice's UUID does not tell its card: any of them may be the one.
    if name.startswith("MIG-"):
        return list(uses)
    found = [use for use in uses if name and use.uuid and use.uuid.lower().startswith(name.lower())]
    return found if len(found) == 1 else None


def nvidia_uses() -> tuple[list[DeviceUse], str | None]:
    """Ask ``nvidia-smi``."""
    text, why = _said("nvidia-smi", f"--query-gpu={','.join(NVIDIA_QUERY)}", "--format=csv,noheader,nounits")
    return ([], why) if text is None else (read_nvidia(text), None)


def read_nvidia(text: str) -> list[DeviceUse]:
    """Read ``nvidia-smi --query-gpu`` as comma-separated values without units; memory is in MiB, use in percent."""
    uses = []
    for row in csv.reader(io.StringIO(text)):
        if len(row) != len(NVIDIA_QUERY):
            continue
        index, uuid, memory, busy = (cell.strip() for cell in row)
        uses.append(
            DeviceUse(
                name=f"GPU {index}",
                memory_bytes=int(memory) << 20 if memory.isdigit() else None,
                busy=int(busy) / 100 if busy.isdigit() else None,
                uuid=uuid,
            )
        )
    return uses


def npu_uses() -> tuple[list[DeviceUse], str | None]:
    """Ask ``npu-smi``."""
    text, why = _said("npu-smi", "info")
    return ([], why) if text is None else (read_npu(text), None)


_CHIP = re.compile(r"^\|\s*(\d+)(?:\s+(\d+))?\s*\|\s*[0-9A-Fa-f]{4}:\S+\s*\|\s*(\d+)\s")
_NPU = re.compile(r"^\|\s*(\d+)\s+\S+\s*\|\s*(?:OK|Warning|Alarm|Critical|UNKNOWN)\b", re.IGNORECASE)
_PROCESS = re.compile(r"^\|\s*(\d+)\s+(\d+)\s*\|\s*\d+\s*\|[^|]*\|\s*(\d+)\s*\|")


def read_npu(text: str) -> list[DeviceUse]:
    """Read ``npu-smi info``: use of the cores in percent, and memory of processes in MB.

    Memory that is in use without a process is the driver's own, some three GiB.
    """
    chips: dict[tuple[int, int], float] = {}
    held: dict[tuple[int, int], int] = {}
    npu = 0
    for line in text.splitlines():
        if row := _PROCESS.match(line):
            key = int(row[1]), int(row[2])
            held[key] = held.get(key, 0) + (int(row[3]) << 20)
        elif row := _CHIP.match(line):
            chips[(npu, int(row[1]))] = int(row[3]) / 100
        elif row := _NPU.match(line):
            npu = int(row[1])
    single = all(chip == 0 for _, chip in chips)
    return [
        DeviceUse(
            name=f"NPU {number}" if single else f"NPU {number}, chip {chip}",
            memory_bytes=held.get((number, chip), 0),
            busy=busy,
        )
        for (number, chip), busy in chips.items()
    ]


def amd_uses() -> tuple[list[DeviceUse], str | None]:
    """Read sysfs: the devices that ROCm counts in its order, or all cards of AMD where its driver shows none."""
    folders = _computing() or [
        (card, None) for card in sorted(DRM.glob("card[0-9]*/device"), key=_number_of_card)
    ]
    uses = [
        DeviceUse(
            name=_card_name(folder),
            memory_bytes=_whole(folder / "mem_info_vram_used"),
            busy=None if (busy := _whole(folder / "gpu_busy_percent")) is None else busy / 100,
            uuid=uuid,
        )
        for folder, uuid in folders
        if _whole(folder / "mem_info_vram_used") is not None
    ]
    return uses, None if uses else "AMD's sysfs is not there"


def _computing() -> list[tuple[Path, str | None]]:
    """Return the folders of devices that compute, with the UUIDs that ROCm gives them; processors have no SIMDs."""
    found = []
    for node in sorted(KFD_NODES.glob("[0-9]*"), key=lambda p: int(p.name)):
        try:
            facts = dict(line.split(maxsplit=1) for line in (node / "properties").read_text().splitlines())
        except (OSError, ValueError):
            continue
        if int(facts.get("simd_count", 0)):
            unique = int(facts.get("unique_id", 0))
            folder = DRM / f"renderD{facts.get('drm_render_minor')}" / "device"
            found.append((folder, f"GPU-{unique:016x}" if unique else None))
    return found


def _card_name(folder: Path) -> str:
    cards = sorted(p.name for p in folder.glob("drm/card[0-9]*"))
    return cards[0] if cards else folder.parent.name


def _number_of_card(folder: Path) -> int:
    return int(re.sub(r"\D", "", folder.parent.name) or 0)


def _whole(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _said(program: str, *arguments: str) -> tuple[str | None, str | None]:
    """Return what a vendor's tool prints, or why it prints nothing."""
    path = shutil.which(program)
    if path is None:
        return None, f"{program} is not there"
    try:
        ended = subprocess.run([path, *arguments], capture_output=True, text=True, timeout=ASK_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return None, f"{program} failed: {error}"
    return ended.stdout, None


VENDORS = (
    Vendor(kind="cuda", uses=nvidia_uses, chosen_by=(("CUDA_VISIBLE_DEVICES",),)),
    # What ROCR leaves is counted anew by HIP, which takes CUDA's variable for its own.
    Vendor(
        kind="rocm",
        uses=amd_uses,
        chosen_by=(("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
    ),
    Vendor(kind="npu", uses=npu_uses, chosen_by=(("ASCEND_RT_VISIBLE_DEVICES",),)),
)
