"""How large the caches are that a protocol keeps warm or cold: the device's own, and the host's only on a CPU.

Sizes of a processor come from the kernel. Those of an accelerator come from its runtime and its datasheet, whichever is
larger: ROCm tells of MI300X's second level alone, not of the 256 MiB behind it, and older versions of PyTorch of none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paceline.families.datasheets import datasheet_of
from paceline.worker.machine.device import Device

HOST_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
HOST_FALLBACK = {"private": 1 << 20, "last": 32 << 20}
UNKNOWN_LAST_LEVEL_BYTES = 512 << 20
"""For accelerators of which nobody tells: more than any that is listed, so that cold stays cold."""
UNKNOWN_PRIVATE_BYTES = 4 << 20
"""For accelerators of which nobody tells: less than any that is listed, so that hot stays hot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """What a working set has to fit into, or to exceed."""

    private_bytes: int
    """Of the second level: sets of a hot pass fit into half of it. A GPU's multiprocessors, or those of one die, share
    it."""
    last_level_bytes: int
    """Of the largest cache in front of the device's memory, with those that lie before it where they add up."""
    source: str
    """Who says so."""


def caches_of(device: Device) -> Caches:
    """Return the caches of the device that computes."""
    return _of_host(HOST_CACHES) if device.torch_type == "cpu" else _of_accelerator(device)


@cache
def _of_host(folder: Path) -> Caches:
    """Return the first core's data caches, as the kernel tells them."""
    sizes: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        try:
            # Instructions are not what a working set evicts.
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        sizes[level] = int(text.rstrip("KM")) * scale
    return Caches(
        private_bytes=sizes.get(2, HOST_FALLBACK["private"]),
        last_level_bytes=max(sizes.values(), default=HOST_FALLBACK["last"]),
        source="the kernel" if sizes else "a guess: the kernel tells of no cache",
    )


def _of_accelerator(device: Device) -> Caches:
    facts = device.describe()
    told = int(facts.get("last_level_cache_bytes") or 0)
    sheet = datasheet_of(
        facts.get("name"), kind=device.torch_type, multiprocessors=facts.get("multiprocessors")
    )
    level_two, last = (sheet.l2_bytes or 0, sheet.last_level_bytes or 0) if sheet else (0, 0)
    known = [name for name, size in (("the runtime", told), ("the datasheet", last)) if size]
    return Caches(
        private_bytes=level_two or told or UNKNOWN_PRIVATE_BYTES,
        last_level_bytes=max(told, last) or UNKNOWN_LAST_LEVEL_BYTES,
        source=" and ".join(known) or "a guess: neither the runtime nor a datasheet tells of a cache",
    )
