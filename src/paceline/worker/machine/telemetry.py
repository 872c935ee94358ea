"""Clocks, power, temperature and throttling of a device while a block is measured.

NVIDIA's library is called through ctypes, AMD's numbers are read from sysfs, Ascend's from ``npu-smi``: whatever runs
beside the accelerator has torch, numpy and the standard library only. Settings are read, never changed. What cannot be
read is None, with the reason.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Reading = dict[str, Any]
"""``clock_hz``, ``power_w``, ``temperature_c``, ``throttle`` (reasons), ``idle``; ``absent`` says why one is None.
``quota``: periods of a limit on the host's processors, and in how many of these it stopped the process."""

SLOWER = 0.95
"""A clock below this share of the block's highest counts as lowered."""
NVML_REASONS: Mapping[int, str] = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of ``nvmlClocksEventReasons`` that mean less speed than asked for (NVML API reference, clocks event reasons)."""
NVML_IDLE = 0x1
_SM_CLOCK, _GPU_TEMPERATURE = 1, 0
_VERSION_BYTES = 80
PCI_DEVICES = Path("/sys/bus/pci/devices")


def nothing(reason: str) -> Reading:
    """Return a reading without a number."""
    return {"clock_hz": None, "power_w": None, "temperature_c": None, "throttle": None, "absent": reason}


class Nvml:
    """One NVIDIA device through ``libnvidia-ml``."""

    def __init__(self, uuid: str | None, index: int, pci: str | None = None) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._check(self._library.nvmlInit_v2())
        self._handle = ctypes.c_void_p()
        self._check(self._find(uuid, index, pci))

    def _find(self, uuid: str | None, index: int, pci: str | None) -> int:
        """Look for the card: by its place on the bus, which a MIG slice shares with it, by its UUID, by its number."""
        handle = ctypes.byref(self._handle)
        found = 1
        if pci:
            found = self._library.nvmlDeviceGetHandleByPciBusId_v2(f"0000{pci}".encode(), handle)
        if found != 0 and uuid:
            name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
            found = self._library.nvmlDeviceGetHandleByUUID(name.encode(), handle)
        if not pci and not uuid:
            found = self._library.nvmlDeviceGetHandleByIndex_v2(index, handle)
        return int(found)

    @staticmethod
    def _check(code: int) -> None:
        if code != 0:
            raise OSError(f"NVML returned error {code}")

    def number(self, function: str, *arguments: int) -> int | None:
        """Return what a function writes into its last argument; None where the device does not tell."""
        value = ctypes.c_uint()
        code = getattr(self._library, function)(self._handle, *arguments, ctypes.byref(value))
        return value.value if code == 0 else None

    def pair(self, function: str) -> tuple[int, int] | None:
        """Return what a function writes into its two last arguments; None where the device does not tell."""
        first, second = ctypes.c_uint(), ctypes.c_uint()
        code = getattr(self._library, function)(self._handle, ctypes.byref(first), ctypes.byref(second))
        return (first.value, second.value) if code == 0 else None

    def driver(self) -> str | None:
        """Return the driver's version."""
        text = ctypes.create_string_buffer(_VERSION_BYTES)
        code = self._library.nvmlSystemGetDriverVersion(text, _VERSION_BYTES)
        return text.value.decode() if code == 0 else None

    def __call__(self) -> Reading:
        """Read the device now."""
        reasons = ctypes.c_ulonglong()
        known = self._library.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, ctypes.byref(reasons))
        clock = self.number("nvmlDeviceGetClockInfo", _SM_CLOCK)
        power = self.number("nvmlDeviceGetPowerUsage")
        return {
            "clock_hz": clock * 1e6 if clock is not None else None,
            "power_w": power * 1e-3 if power is not None else None,
            "temperature_c": self.number("nvmlDeviceGetTemperature", _GPU_TEMPERATURE),
            "throttle": nvml_reasons(reasons.value) if known == 0 else None,
            "idle": bool(reasons.value & NVML_IDLE) if known == 0 else None,
        }


def nvml_reasons(bits: int) -> list[str]:
    """Name the reasons in a bit field for which a device runs slower than asked."""
    return [name for bit, name in NVML_REASONS.items() if bits & bit]


def amd_reading(folder: Path) -> Reading:
    """Read an AMD device's sysfs folder (``/sys/class/drm/card<N>/device``); clocks from ``pp_dpm_sclk``."""
    try:
        active = re.search(r"(\d+)\s*Mhz\s*\*", (folder / "pp_dpm_sclk").read_text(), re.IGNORECASE)
    except OSError as error:
        return nothing(f"{folder} cannot be read: {error.strerror}")
    monitor = next(iter(sorted(folder.glob("hwmon/hwmon*"))), folder)
    power = _number(monitor / "power1_average") or _number(monitor / "power1_input")
    heat = _number(monitor / "temp1_input")
    return {
        "clock_hz": float(active[1]) * 1e6 if active else None,
        "power_w": power * 1e-6 if power is not None else None,
        "temperature_c": heat * 1e-3 if heat is not None else None,
        "throttle": None,
        "absent": "sysfs does not tell why a clock is low",
    }


def npu_smi_reading(text: str) -> Reading:
    """Read what ``npu-smi info -t common`` prints."""
    found = {
        key.strip().lower(): value.strip()
        for key, separator, value in (line.partition(":") for line in text.splitlines())
        if separator
    }

    def number(*parts: str) -> float | None:
        for key, value in found.items():
            if all(part in key for part in parts):
                matched = re.match(r"-?\d+(\.\d+)?", value)
                return float(matched[0]) if matched else None
        return None

    clock = number("aicore", "freq")
    return {
        "clock_hz": clock * 1e6 if clock is not None else None,
        "power_w": number("power"),
        "temperature_c": number("temperature"),
        "throttle": None,
        "absent": "npu-smi does not tell why a clock is low",
    }


def reader(
    kind: str, *, index: int = 0, uuid: str | None = None, pci: str | None = None
) -> Callable[[], Reading]:
    """Return the function that reads a device; one that says why not where it cannot be read."""
    if kind == "cuda":
        try:
            return Nvml(uuid, index, pci)
        except (OSError, AttributeError) as error:
            reason = f"NVML: {error}"
            return lambda: nothing(reason)
    if kind == "rocm":
        # By its place: a processor's own graphics is a card too, and torch counts the visible ones alone.
        if pci and (PCI_DEVICES / pci / "pp_dpm_sclk").exists():
            return lambda: amd_reading(PCI_DEVICES / pci)
        cards = [
            p
            for p in sorted(Path("/sys/class/drm").glob("card[0-9]*/device"))
            if (p / "pp_dpm_sclk").exists()
        ]
        if index < len(cards):
            return lambda: amd_reading(cards[index])
        return lambda: nothing("no AMD device shows its clocks in sysfs")
    if kind == "npu":
        return lambda: _ask_npu_smi(index)
    return lambda: nothing(f"nothing is known of a {kind} device's clocks")


def _ask_npu_smi(index: int) -> Reading:
    program = shutil.which("npu-smi")
    if program is None:
        return nothing("npu-smi is not installed")
    try:
        ended = subprocess.run(
            [program, "info", "-t", "common", "-i", str(index)],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return nothing(f"npu-smi failed: {error}")
    return npu_smi_reading(ended.stdout)


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


@dataclass(slots=True)
class Watch:
    """A device's readings through one block; clocks are compared only where a device says that it was not idle."""

    read: Callable[[], Reading]
    readings: list[Reading] = field(default_factory=list)

    def sample(self) -> None:
        """Read the device once."""
        self.readings.append(self.read())

    @property
    def reasons(self) -> list[str]:
        """Why the device ran slower than it could, in words; empty when it did not, or does not tell."""
        found = dict.fromkeys(name for r in self.readings for name in r.get("throttle") or ())
        clocks = [float(r["clock_hz"]) for r in self.readings if r.get("clock_hz") and r.get("idle") is False]
        if clocks and min(clocks) < SLOWER * max(clocks):
            found[f"the clock fell from {max(clocks) / 1e6:.0f} to {min(clocks) / 1e6:.0f} MHz"] = None
        quotas = [q for r in self.readings if (q := r.get("quota")) is not None]
        if quotas and (stopped := quotas[-1]["stopped"] - quotas[0]["stopped"]) > 0:
            periods = quotas[-1]["periods"] - quotas[0]["periods"]
            found[f"a quota of processor time stopped it in {stopped} of {periods} periods"] = None
        return list(found)

    @property
    def flags(self) -> list[str]:
        """The mark that travels with the block's numbers."""
        return ["throttled"] if self.reasons else []

    def facts(self) -> dict[str, Any]:
        """Return the readings as plain data for a record."""
        if not self.readings:
            return {}
        ranges = {}
        for key in ("clock_hz", "power_w", "temperature_c"):
            values = [float(r[key]) for r in self.readings if r.get(key) is not None]
            ranges[key] = {"min": min(values), "max": max(values)} if values else None
        return {
            "before": self.readings[0],
            "after": self.readings[-1],
            "num_readings": len(self.readings),
            **ranges,
            "throttled": self.reasons,
        }
