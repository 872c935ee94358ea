"""Clocks and throttling: read from each vendor's own words, and noticed in the block that suffered."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.worker.machine.device import FakeDevice
from paceline.worker.machine.telemetry import Watch, amd_reading, npu_smi_reading, nvml_reasons, reader
from paceline.worker.timing.interleaved import Limits, Series, measure, median, summarise

pytestmark = pytest.mark.gate

LIMITS = Limits(max_seconds=9.0, min_samples=200, max_samples=200, warmup="none")
CALL_S = 0.001

NPU_SMI = """
        NPU ID                         : 0
        Chip Count                     : 1
        Aicore Usage Rate(%)           : 87
        Aicore Freq(MHZ)               : 1650
        Temperature(C)                 : 54
        NPU Real-time Power(W)         : 231.4
"""
SCLK = "0: 500Mhz\n1: 1700Mhz *\n2: 2100Mhz\n"


class Arm:
    """Work of one millisecond on a fake device."""

    def __init__(self, device: FakeDevice, label: str) -> None:
        self.device, self.label = device, label

    def observe(self) -> tuple[float, int]:
        start = self.device.clock_ns()
        self.device.work(CALL_S, stream=self.label)
        return (self.device.clock_ns() - start) * 1e-9, start


def series_of(device: FakeDevice, labels: str, watch: Watch) -> list[Series]:
    return measure(
        [Arm(device, label) for label in labels],
        LIMITS,
        clock_ns=device.clock_ns,
        gather=lambda rows: [rows],
        rng=random.Random(1),
        each_batch=watch.sample,
    )


def measured(device: FakeDevice, watch: Watch) -> list[list[float]]:
    return [s.samples for s in series_of(device, "ab", watch)]


def quiet(**settings: float) -> FakeDevice:
    return FakeDevice({"sample_noise": 0.0, "launch_noise": 0.0, **settings})


def test_a_device_that_throttles_is_noticed_in_its_block() -> None:
    device = quiet(throttle_after_s=0.1, throttle_factor=1.3)
    watch = Watch(device.telemetry)
    samples = measured(device, watch)[0]
    assert max(samples) == pytest.approx(1.3 * min(samples), rel=1e-3)
    assert watch.flags == ["throttled"]
    assert "the clock fell from 1000 to 769 MHz" in watch.reasons
    assert watch.facts()["clock_hz"] == {"min": pytest.approx(1e9 / 1.3), "max": 1e9}


def test_a_device_that_keeps_its_clock_is_not_blamed() -> None:
    watch = Watch(quiet().telemetry)
    measured(quiet(), watch)
    assert watch.flags == [] and watch.facts()["throttled"] == []


def test_drift_meets_interleaved_techniques_alike() -> None:
    device = quiet(drift_per_second=0.2 / 0.4)
    first, second = measured(device, Watch(device.telemetry))
    assert max(first) / min(first) > 1.15
    assert median(first) / median(second) == pytest.approx(1.0, abs=0.002)


def test_flags_travel_with_the_series() -> None:
    device = quiet(throttle_after_s=0.1, throttle_factor=1.3)
    watch = Watch(device.telemetry)
    (series,) = series_of(device, "a", watch)
    assert "throttled" in summarise(series, watch.flags)["flags"]


def flags_of(device: FakeDevice, labels: str) -> list[list[str]]:
    return [summarise(s)["flags"] for s in series_of(device, labels, Watch(device.telemetry))]


def test_caches_that_another_technique_has_emptied_are_noticed() -> None:
    cold = FakeDevice({"sample_noise": 0.01, "evict_factor": 1.2})
    assert all("carry-over" in flags for flags in flags_of(cold, "ab"))


def test_independent_calls_and_drift_are_not_taken_for_carry_over() -> None:
    for settings in ({}, {"drift_per_second": 0.5}, {"sample_noise": 0.2}):
        device = FakeDevice({"sample_noise": 0.01, **settings})
        assert not any("carry-over" in flags for flags in flags_of(device, "ab"))
    assert not any("carry-over" in flags for flags in flags_of(FakeDevice({"evict_factor": 1.2}), "a"))


def test_an_idle_clock_is_no_throttling() -> None:
    readings = iter(
        [{"clock_hz": 2e9, "throttle": [], "idle": False}, {"clock_hz": 3e8, "throttle": [], "idle": True}]
    )
    read: Callable[[], dict[str, object]] = lambda: next(readings)  # noqa: E731
    watch = Watch(read)
    watch.sample()
    watch.sample()
    assert watch.flags == []


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0x0, []),
        (0x1, []),
        (0x4, ["software power cap"]),
        (0x60, ["software thermal slowdown", "hardware thermal slowdown"]),
    ],
)
def test_nvml_bits_are_named(bits: int, names: list[str]) -> None:
    assert nvml_reasons(bits) == names


def test_npu_smi_is_read() -> None:
    found = npu_smi_reading(NPU_SMI)
    assert (found["clock_hz"], found["power_w"], found["temperature_c"]) == (1650e6, 231.4, 54.0)
    assert npu_smi_reading("nothing here")["clock_hz"] is None


def test_amd_is_read_from_sysfs(tmp_path: Path) -> None:
    monitor = tmp_path / "hwmon" / "hwmon3"
    monitor.mkdir(parents=True)
    (tmp_path / "pp_dpm_sclk").write_text(SCLK)
    (monitor / "power1_average").write_text("250000000\n")
    (monitor / "temp1_input").write_text("61000\n")
    found = amd_reading(tmp_path)
    assert (found["clock_hz"], found["power_w"], found["temperature_c"]) == (1700e6, 250.0, 61.0)
    assert "sysfs" in found["absent"]


@pytest.mark.parametrize("kind", ["cuda", "rocm", "npu", "other"])
def test_what_cannot_be_read_says_why(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = reader(kind, index=99)()
    assert found["clock_hz"] is None and found["absent"]
