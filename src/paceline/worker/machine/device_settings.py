"""How accelerators are set: power limits, clocks, slices, memory checks, links; read, and never changed.

NVIDIA's library is called through ctypes, with ``nvidia-smi -q`` in its place where it cannot be loaded; AMD's settings
are read from sysfs. What cannot be read is None. Devices are named by a digest of their UUID, as hosts are.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.worker.machine.telemetry import Nvml

Settings = dict[str, Any]
"""``uuid_sha256``; ``power_limit_w`` (in force), ``power_default_w``, ``power_max_w``; ``clock_set_hz`` (that
applications get), ``clock_max_hz``, ``memory_clock_hz``; ``mig``, ``ecc``, ``persistence`` (switched on or not);
``clocks_restricted`` (root alone may set them); ``pcie_generation``, ``pcie_width``, ``nvlinks`` (active ones);
``level`` and ``partition`` (AMD's, of performance, and of compute and memory); ``driver``; ``source``."""

NAMES = (
    *("uuid_sha256", "power_limit_w", "power_default_w", "power_max_w", "clock_set_hz", "clock_max_hz"),
    *("memory_clock_hz", "mig", "ecc", "persistence", "clocks_restricted", "pcie_generation", "pcie_width"),
    *("nvlinks", "level", "partition", "driver", "source"),
)
ASK_S = 10.0
PCI_DEVICES = Path("/sys/bus/pci/devices")
MODULES = Path("/sys/module")
_GRAPHICS_CLOCK, _MEMORY_CLOCK = 0, 2
_SETTING_CLOCKS = 0
"""The restricted function of ``nvmlRestrictedAPI_t`` that sets clocks."""
MAX_NVLINKS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which device is meant."""

    index: int
    """As torch counts the visible ones."""
    uuid: str | None = None
    pci: str | None = None
    """``0000:06:00.0``; a MIG slice has that of its card, whose settings are its own."""


def place_of(properties: object, index: int) -> Place:
    """Return where a device lies, from the properties that torch gives of it."""
    uuid = getattr(properties, "uuid", None)
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    known = [part for part in parts if part is not None]
    pci = "{:04x}:{:02x}:{:02x}.0".format(*known) if len(known) == len(parts) else None
    return Place(index=index, uuid=str(uuid) if uuid else None, pci=pci)


def settings_of(kind: str, place: Place) -> Settings:
    """Return how a device is set; ``source`` says why where nothing is known.

    Args:
        kind: cuda, rocm or npu.
        place: Of the device.
    """
    if kind == "cuda":
        try:
            return _nvml(Nvml(place.uuid, place.index, place.pci), place)
        except (OSError, AttributeError) as error:
            return _ask_nvidia_smi(place, f"NVML: {error}")
    if kind == "rocm":
        folder = PCI_DEVICES / str(place.pci)
        if place.pci and folder.is_dir():
            return amd_settings(folder)
        return _named(source=f"sysfs shows no device at {place.pci or 'an unknown place'}")
    return _named(source=f"nothing is known of how a {kind} device is set")


def named(uuid: str | None) -> str | None:
    """Return a device's name in records."""
    plain = (uuid or "").removeprefix("GPU-")
    return hashlib.sha256(plain.encode()).hexdigest()[:16] if plain else None


def _named(**found: Any) -> Settings:
    """Return settings of which the other ones are not known."""
    return {name: found.get(name) for name in NAMES}


def _nvml(device: Nvml, place: Place) -> Settings:
    watts = {
        name: device.number(f"nvmlDeviceGet{function}")
        for name, function in (
            ("power_limit_w", "EnforcedPowerLimit"),
            ("power_default_w", "PowerManagementDefaultLimit"),
        )
    }
    limits = device.pair("nvmlDeviceGetPowerManagementLimitConstraints")
    clocks = {
        "clock_set_hz": device.number("nvmlDeviceGetApplicationsClock", _GRAPHICS_CLOCK),
        "clock_max_hz": device.number("nvmlDeviceGetMaxClockInfo", _GRAPHICS_CLOCK),
        "memory_clock_hz": device.number("nvmlDeviceGetApplicationsClock", _MEMORY_CLOCK),
    }
    mig, ecc = device.pair("nvmlDeviceGetMigMode"), device.pair("nvmlDeviceGetEccMode")
    persistence = device.number("nvmlDeviceGetPersistenceMode")
    restricted = device.number("nvmlDeviceGetAPIRestriction", _SETTING_CLOCKS)
    links = [device.number("nvmlDeviceGetNvLinkState", link) for link in range(MAX_NVLINKS)]
    return _named(
        uuid_sha256=named(place.uuid),
        **{k: None if v is None else v * 1e-3 for k, v in watts.items()},
        power_max_w=None if limits is None else limits[1] * 1e-3,
        **{k: None if v is None else v * 1e6 for k, v in clocks.items()},
        mig=None if mig is None else bool(mig[0]),
        ecc=None if ecc is None else bool(ecc[0]),
        persistence=None if persistence is None else bool(persistence),
        clocks_restricted=None if restricted is None else bool(restricted),
        pcie_generation=device.number("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_width=device.number("nvmlDeviceGetCurrPcieLinkWidth"),
        nvlinks=sum(1 for link in links if link),
        driver=device.driver(),
        source="NVML",
    )


def _ask_nvidia_smi(place: Place, why: str) -> Settings:
    program = shutil.which("nvidia-smi")
    if program is None:
        return _named(source=f"{why}; nvidia-smi is not installed")
    try:
        ended = subprocess.run([program, "-q"], capture_output=True, text=True, timeout=ASK_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return _named(source=f"{why}; nvidia-smi failed: {error}")
    found = nvidia_smi_settings(ended.stdout)
    key = named(place.uuid)
    chosen = [s for s in found if key and s["uuid_sha256"] == key] or found[place.index : place.index + 1]
    return chosen[0] if chosen else _named(source=f"{why}; nvidia-smi -q lists no such device")


def nvidia_smi_settings(text: str) -> list[Settings]:
    """Read what ``nvidia-smi -q`` prints: one entry for each device, in its order."""
    head, *parts = re.split(r"(?m)^GPU (?=[0-9A-Fa-f]{8}:)", text)
    driver = _nested(head).get(("Driver Version",))
    return [_of_nvidia_smi(_nested(part), driver) for part in parts]


def _nested(text: str) -> dict[tuple[str, ...], str]:
    """Return values by the headings that they stand under, which are told by how far lines are indented."""
    found: dict[tuple[str, ...], str] = {}
    above: list[tuple[int, str]] = []
    for line in text.splitlines():
        name, separator, value = line.partition(" : ")
        indent = len(line) - len(line.lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        if separator:
            found[(*(heading for _, heading in above), name.strip())] = value.strip()
        elif line.strip():
            above.append((indent, line.strip()))
    return found


def _of_nvidia_smi(found: Mapping[tuple[str, ...], str], driver: str | None) -> Settings:
    # The first line of a device's part is its place on the bus, which all else stands under.
    plain = {(k[1:] if k and re.match(r"[0-9A-Fa-f]{8}:", k[0]) else k): value for k, value in found.items()}

    def number(*path: str, scale: float = 1.0) -> float | None:
        matched = re.match(r"-?\d+(\.\d+)?", plain.get(path, ""))
        return float(matched[0]) * scale if matched else None

    def whole(*path: str) -> int | None:
        value = number(*path)
        return None if value is None else int(value)

    def on(*path: str) -> bool | None:
        return {"Enabled": True, "Disabled": False}.get(plain.get(path, ""))

    # Older drivers: "Power Readings"; "Enforced Power Limit" where newer ones say "Current".
    power = next((h for h in ("GPU Power Readings", "Power Readings") if any(k[0] == h for k in plain)), "")
    return _named(
        uuid_sha256=named(plain.get(("GPU UUID",))),
        power_limit_w=number(power, "Current Power Limit") or number(power, "Enforced Power Limit"),
        power_default_w=number(power, "Default Power Limit"),
        power_max_w=number(power, "Max Power Limit"),
        clock_set_hz=number("Applications Clocks", "Graphics", scale=1e6),
        clock_max_hz=number("Max Clocks", "Graphics", scale=1e6),
        memory_clock_hz=number("Applications Clocks", "Memory", scale=1e6),
        mig=on("MIG Mode", "Current"),
        ecc=on("ECC Mode", "Current"),
        persistence=on("Persistence Mode"),
        pcie_generation=whole("PCI", "GPU Link Info", "PCIe Generation", "Max"),
        pcie_width=whole("PCI", "GPU Link Info", "Link Width", "Current"),
        driver=driver,
        source="nvidia-smi -q",
    )


def amd_settings(folder: Path) -> Settings:
    """Read an AMD device's folder in sysfs (Linux kernel documentation, *GPU power/thermal controls*)."""
    monitor = next(iter(sorted(folder.glob("hwmon/hwmon*"))), folder)
    watts = {
        "power_limit_w": _number(monitor / "power1_cap"),
        "power_default_w": _number(monitor / "power1_cap_default"),
        "power_max_w": _number(monitor / "power1_cap_max"),
    }
    partition = [_text(folder / f"current_{what}_partition") for what in ("compute", "memory")]
    speed = re.match(r"[\d.]+", _text(folder / "max_link_speed") or "")
    width = _number(folder / "current_link_width")
    return _named(
        uuid_sha256=named(_text(folder / "unique_id")),
        **{k: None if v is None else v * 1e-6 for k, v in watts.items()},
        clock_max_hz=_highest(folder / "pp_dpm_sclk"),
        memory_clock_hz=_highest(folder / "pp_dpm_mclk"),
        # Transfers a second double with each generation, from 2.5 or 5 of the first two.
        pcie_generation=_GENERATIONS.get(float(speed[0])) if speed else None,
        pcie_width=None if width is None else int(width),
        level=_text(folder / "power_dpm_force_performance_level"),
        partition="/".join(p for p in partition if p) or None,
        driver=_text(MODULES / "amdgpu" / "version"),
        source="sysfs",
    )


_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def _highest(path: Path) -> float | None:
    levels = re.findall(r"(\d+)\s*Mhz", _text(path) or "", re.IGNORECASE)
    return max(map(float, levels)) * 1e6 if levels else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
