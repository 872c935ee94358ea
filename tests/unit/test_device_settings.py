"""How accelerators are set: as NVML, nvidia-smi and sysfs tell it, and what of it makes another class of hosts."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from paceline.records.identity import host_class
from paceline.worker.machine import device_settings, host, telemetry
from paceline.worker.machine.device_settings import (
    NAMES,
    Place,
    amd_settings,
    named,
    nvidia_smi_settings,
    place_of,
    settings_of,
)

GOLDEN = Path(__file__).parent / "goldens" / "nvidia-smi-q-h100.txt"
UUID = "00000000-1111-2222-3333-444444444444"
AS_PRINTED = {
    "uuid_sha256": named(UUID),
    "power_limit_w": 700.0,
    "power_default_w": 700.0,
    "power_max_w": 700.0,
    "clock_set_hz": 1980e6,
    "clock_max_hz": 1980e6,
    "memory_clock_hz": 2619e6,
    "mig": False,
    "ecc": True,
    "persistence": True,
    "clocks_restricted": None,
    "pcie_generation": 5,
    "pcie_width": 16,
    "nvlinks": None,
    "level": None,
    "partition": None,
    "driver": "580.159.04",
    "source": "nvidia-smi -q",
}


def test_nvidia_smi_is_read_as_an_h100_prints_it() -> None:
    assert nvidia_smi_settings(GOLDEN.read_text()) == [AS_PRINTED]
    assert nvidia_smi_settings("nothing here") == []


def test_nvidia_smi_of_several_devices_is_read_one_by_one() -> None:
    text = GOLDEN.read_text()
    head, _, part = text.partition("GPU 00000000:")
    lower = re.sub(r"(Current Power Limit +: )700", r"\g<1>500", part, count=1)
    lower = re.sub(r"(MIG Mode\n +Current +: )Disabled", r"\g<1>Enabled", lower)
    lower = lower.replace(UUID, UUID.replace("0", "a"))
    found = nvidia_smi_settings(f"{head}GPU 00000000:{part}GPU 00000000:{lower}")
    assert [s["power_limit_w"] for s in found] == [700.0, 500.0]
    assert [s["mig"] for s in found] == [False, True]
    assert found[0]["uuid_sha256"] != found[1]["uuid_sha256"]


class FakeNvml:
    """NVIDIA's library with one card, in MIG mode, whose slice has a UUID that it does not know."""

    NUMBERS: ClassVar[dict[Any, int]] = {
        "nvmlDeviceGetEnforcedPowerLimit": 500_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
        ("nvmlDeviceGetApplicationsClock", 0): 1410,
        ("nvmlDeviceGetApplicationsClock", 2): 2619,
        ("nvmlDeviceGetMaxClockInfo", 0): 1980,
        ("nvmlDeviceGetAPIRestriction", 0): 1,
        "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetCurrPcieLinkWidth": 16,
    }
    PAIRS: ClassVar[dict[str, tuple[int, int]]] = {
        "nvmlDeviceGetPowerManagementLimitConstraints": (200_000, 700_000),
        "nvmlDeviceGetMigMode": (1, 1),
        "nvmlDeviceGetEccMode": (1, 1),
    }

    def __init__(self, name: str) -> None:
        assert name == "libnvidia-ml.so.1"
        self.asked: list[bytes] = []

    def __getattr__(self, function: str) -> Any:
        if function in ("nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByUUID"):
            return lambda name, handle: self._find(name)
        if function == "nvmlInit_v2":
            return lambda: 0
        if function == "nvmlSystemGetDriverVersion":
            return lambda text, size: int(setattr(text, "value", b"580.159.04") is not None)
        if function == "nvmlDeviceGetNvLinkState":
            return lambda handle, link, out: self._write(out, 1) if link < 18 else 2
        if function in self.PAIRS:
            low, high = self.PAIRS[function]
            return lambda handle, a, b: self._write(a, low) or self._write(b, high)
        return lambda handle, *rest: self._number(function, rest)

    def _find(self, name: bytes) -> int:
        self.asked.append(name)
        return 0 if name == b"00000000:06:00.0" else 6

    def _number(self, function: str, rest: tuple[Any, ...]) -> int:
        key: Any = (function, *rest[:-1]) if len(rest) > 1 else function
        found = self.NUMBERS.get(key)
        return 3 if found is None else self._write(rest[-1], found)

    @staticmethod
    def _write(out: Any, value: int) -> int:
        out._obj.value = value
        return 0


def test_nvml_tells_of_a_slices_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", FakeNvml)
    found = settings_of("cuda", Place(index=0, uuid=UUID, pci="0000:06:00.0"))
    assert found == AS_PRINTED | {
        "power_limit_w": 500.0,
        "clock_set_hz": 1410e6,
        "mig": True,
        "clocks_restricted": True,
        "nvlinks": 18,
        "source": "NVML",
    }


def test_a_place_is_what_torch_tells_of_it() -> None:
    told = SimpleNamespace(uuid=UUID, pci_domain_id=0, pci_bus_id=6, pci_device_id=0)
    assert place_of(told, 3) == Place(index=3, uuid=UUID, pci="0000:06:00.0")
    assert place_of(SimpleNamespace(), 0) == Place(index=0)


def test_without_the_library_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "nvidia-smi is not installed" in settings_of("cuda", Place(index=0))["source"]
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nwhile IFS= read -r line; do echo \"$line\"; done < '{GOLDEN}'\n")
    program.chmod(0o755)
    assert settings_of("cuda", Place(index=0, uuid=UUID)) == AS_PRINTED
    assert "lists no such device" in settings_of("cuda", Place(index=1))["source"]


@pytest.fixture
def mi300x(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a card's folder as the kernel of an MI300X shows it."""
    folder = tmp_path / "devices" / "0000:c1:00.0"
    monitor = folder / "hwmon" / "hwmon5"
    monitor.mkdir(parents=True)
    for name, text in {
        "unique_id": "a1b2c3d4e5f60718",
        "pp_dpm_sclk": "0: 132Mhz *\n1: 2100Mhz\n",
        "pp_dpm_mclk": "0: 900Mhz\n1: 1300Mhz *\n",
        "power_dpm_force_performance_level": "auto",
        "current_compute_partition": "SPX",
        "current_memory_partition": "NPS1",
        "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16",
    }.items():
        (folder / name).write_text(text + "\n")
    for name in ("power1_cap", "power1_cap_default", "power1_cap_max"):
        (monitor / name).write_text("750000000\n")
    module = tmp_path / "module" / "amdgpu"
    module.mkdir(parents=True)
    (module / "version").write_text("6.12.12\n")
    monkeypatch.setattr(device_settings, "PCI_DEVICES", folder.parent)
    monkeypatch.setattr(telemetry, "PCI_DEVICES", folder.parent)
    monkeypatch.setattr(device_settings, "MODULES", module.parent)
    return folder


def test_amd_is_read_from_sysfs_by_its_place_on_the_bus(mi300x: Path) -> None:
    found = settings_of("rocm", Place(index=0, pci="0000:c1:00.0"))
    assert found == amd_settings(mi300x)
    assert set(found) == set(NAMES)
    assert (found["power_limit_w"], found["clock_max_hz"], found["memory_clock_hz"]) == (750, 2.1e9, 1.3e9)
    assert (found["pcie_generation"], found["pcie_width"], found["driver"]) == (5, 16, "6.12.12")
    assert (found["level"], found["partition"]) == ("auto", "SPX/NPS1")
    assert "no device at 0000:02:00.0" in settings_of("rocm", Place(index=0, pci="0000:02:00.0"))["source"]
    reading = telemetry.reader("rocm", index=1, pci="0000:c1:00.0")()
    assert reading["clock_hz"] == 132e6, "the second card of torch, and the only one that is meant"


HOST = {"cpu": "Intel(R) Xeon(R) CPU @ 2.20GHz", "usable_cores": 16, "memory_class_gib": 256}
PLAIN = "Intel Xeon, 16 cores, 256 GiB"


def classed(*settings: dict[str, Any], **changes: Any) -> str:
    """Return the class of a host with an H100 of these settings."""
    device = {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3", "count": len(settings)}
    return host_class(HOST, {**device, "devices": list(settings), **changes})


def test_what_lowers_clocks_makes_another_class_and_a_driver_does_not() -> None:
    base = f"{PLAIN}, NVIDIA H100 80GB HBM3 × 1, 700 W"
    assert classed(AS_PRINTED) == base
    assert classed(AS_PRINTED, driver="570.1") == classed(AS_PRINTED, driver="580.2") == base
    assert classed({**AS_PRINTED, "power_limit_w": 500.0}) == base.replace("700 W", "500 W")
    assert classed({**AS_PRINTED, "clock_set_hz": 1410e6}) == f"{base}, clock set to 1410 MHz"
    mixed = classed(AS_PRINTED, {**AS_PRINTED, "power_limit_w": 500.0})
    assert mixed == f"{PLAIN}, NVIDIA H100 80GB HBM3 × 2, 500 W and 700 W"
    sliced = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert classed(AS_PRINTED, name=sliced) == f"{PLAIN}, {sliced} × 1, 700 W"


def test_amds_partitions_and_levels_make_another_class(mi300x: Path) -> None:
    def now() -> str:
        device = {"kind": "rocm", "name": "AMD Instinct MI300X", "count": 1}
        return host_class(HOST, {**device, "devices": [amd_settings(mi300x)]})

    assert now() == f"{PLAIN}, AMD Instinct MI300X × 1, 750 W, partition SPX/NPS1"
    (mi300x / "power_dpm_force_performance_level").write_text("perf_determinism\n")
    (mi300x / "current_compute_partition").write_text("CPX\n")
    assert now().endswith("750 W, performance level perf_determinism, partition CPX/NPS1")


def test_a_device_whose_settings_are_unknown_has_a_class() -> None:
    unknown = settings_of("npu", Place(index=0))
    assert classed(unknown) == classed(devices=None).replace("× 0", "× 1")


def test_drivers_are_known_from_settings_or_from_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ascend = tmp_path / "version.info"
    ascend.write_text("Version=24.1.rc3\nascendhal_version=7.35.23\n")
    monkeypatch.setattr(host, "DRIVERS", ((tmp_path / "none", "x"), (ascend, host.DRIVERS[1][1])))
    assert host._driver({"devices": [AS_PRINTED]}) == "580.159.04"
    assert host._driver({"devices": [{"driver": None}]}) == "24.1.rc3"
