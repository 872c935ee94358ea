"""One adapter for every kind of device: synchronise, describe, read telemetry; and a fake one for tests.

CUDA, ROCm, Ascend NPU and plug-ins are instances of ``torch.accelerator``; nothing outside this module asks which one
it is. The fake device keeps virtual time with programmable noise, drift and throttling, so that the statistics can be
tried on thousands of runs whose truth is known.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from paceline.base.counting import number_of
from paceline.base.errors import PrerequisiteError, UserError
from paceline.base.techniques.requirements import present
from paceline.worker.machine import telemetry
from paceline.worker.machine.cpu_quota import cpu_quota
from paceline.worker.machine.device_settings import Settings, place_of, settings_of

if TYPE_CHECKING:
    from paceline.worker.timing.split import Marks

_monotonic_ns = time.perf_counter_ns

FAKE_DEFAULTS: Mapping[str, float] = {
    "sample_noise": 0.01,
    "launch_noise": 0.01,
    "drift_per_launch": 0.0,
    "drift_per_second": 0.0,
    "throttle_after_s": math.inf,
    "throttle_factor": 1.0,
    "evict_factor": 1.0,
}
"""Noise model of the fake device: standard deviations of log-normal factors, and relative drifts."""


class Device(Protocol):
    """What the worker needs from a device."""

    kind: str
    """cpu, cuda, rocm, npu, plugin or fake."""
    torch_type: str
    """The name that torch gives to tensors' devices."""
    no_graphs: str | None
    """Why calls cannot be captured and replayed as a graph, or None where they can."""
    no_profiler: str | None
    """Why torch.profiler tells nothing of this device's own time, or None where it does."""

    def clock_ns(self) -> int:
        """Read the clock that samples are timed with, in nanoseconds."""
        ...

    def synchronize(self) -> None:
        """Wait until all work that was issued to the device has finished."""
        ...

    def marks(self) -> Marks | None:
        """Return what marks places in the current stream, or None where a call's work is done when it returns."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return name, count, memory and runtime versions; absent facts are None."""
        ...

    def telemetry(self) -> dict[str, Any]:
        """Return clocks, power, temperature and throttle reasons now; absent facts are None."""
        ...


class CpuDevice:
    """The host processor: work is synchronous, so there is nothing to wait for."""

    kind = "cpu"
    torch_type = "cpu"
    no_graphs: str | None = "a CPU has no graph of launches to replay"
    no_profiler: str | None = None

    def __init__(self) -> None:
        self._quota = cpu_quota()

    def clock_ns(self) -> int:
        """Read the monotonic performance counter."""
        return _monotonic_ns()

    def synchronize(self) -> None:
        """Do nothing: CPU tensors are ready when a call returns."""

    def marks(self) -> Marks | None:
        """Return None: the host's clock tells."""
        return None

    def describe(self) -> dict[str, Any]:
        """Return the processor's model name and the cores that this process may use."""
        return {"name": cpu_model(), "count": len(os.sched_getaffinity(0)), "memory_bytes": None}

    def telemetry(self) -> dict[str, Any]:
        """Return the load average and, where the kernel shows it, the current frequency."""
        frequency = _read_number("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
        return {
            "load_1min": os.getloadavg()[0],
            "clock_hz": frequency * 1000 if frequency is not None else None,
            "quota": self._quota.stopped() if self._quota is not None else None,
        }


class AcceleratorDevice:
    """CUDA, ROCm, NPU or what a plug-in registers, through ``torch.accelerator``."""

    def __init__(self, kind: str, index: int, *, num_ranks: int = 1, shared: bool = False) -> None:
        import torch  # noqa: PLC0415 - the control plane reads this module's constants without torch

        if kind == "npu":
            try:
                import torch_npu  # type: ignore[import-not-found] # noqa: PLC0415, F401 - only on Ascend
            except ImportError as error:
                raise PrerequisiteError(
                    "the npu device requires torch_npu", fix="pip install torch-npu"
                ) from error
        if not torch.accelerator.is_available():
            raise PrerequisiteError(
                f"no {kind} device is visible to torch",
                fix="paceline doctor says what torch sees here; install a torch that was built for this accelerator, "
                "or measure without one: --runner=local-cpu",
            )
        accelerator = torch.accelerator.current_accelerator()
        assert accelerator is not None
        found = kind_here()
        if found != kind:
            raise PrerequisiteError(
                f"the accelerator here is {found}, not {kind}",
                fix=f"paceline doctor says what torch sees here; name a runner whose device is {found}",
            )
        self._torch = torch
        self.kind = kind
        self.torch_type = accelerator.type
        through_cuda = accelerator.type == "cuda"
        self.no_graphs = None if through_cuda else f"torch has no graphs of {kind} devices"
        self.no_profiler = None if through_cuda else f"torch.profiler knows no activities of {kind} devices"
        count = torch.accelerator.device_count()
        if num_ranks > count and not shared:
            raise PrerequisiteError(
                f"{number_of(num_ranks, 'rank needs', 'ranks need')} {num_ranks} {kind} devices, {present(count)} here",
                fix="fewer ranks (--filter=ranks=…), or a runner with backend: gloo and share_devices: true",
            )
        self.index = index % count
        torch.accelerator.set_device_index(self.index)
        self._read: Callable[[], telemetry.Reading] | None = None
        self._quota = cpu_quota()
        self._settings: list[Settings] | None = None

    def clock_ns(self) -> int:
        """Read the host's performance counter; callers synchronise around it."""
        return _monotonic_ns()

    def synchronize(self) -> None:
        """Wait for all streams of the current device."""
        self._torch.accelerator.synchronize()

    def marks(self) -> Marks | None:
        """Return events of the device."""
        from paceline.worker.timing.split import EventMarks  # noqa: PLC0415 - it imports torch

        return EventMarks(self.torch_type)

    def describe(self) -> dict[str, Any]:
        """Return the device's name, count, memory and runtime version."""
        torch = self._torch
        module = getattr(torch, self.torch_type)
        properties = module.get_device_properties(self.index)
        return {
            "name": module.get_device_name(self.index),
            "count": torch.accelerator.device_count(),
            "memory_bytes": getattr(properties, "total_memory", None),
            "runtime": getattr(torch.version, "hip", None) or torch.version.cuda,
            "multiprocessors": getattr(properties, "multi_processor_count", None),
            "last_level_cache_bytes": getattr(properties, "L2_cache_size", None),
            "devices": self._set(),
        }

    def _set(self) -> list[Settings]:
        """Return how each visible device is set; asked once, since blocks ask for a description each."""
        if self._settings is None:
            module = getattr(self._torch, self.torch_type)
            count = self._torch.accelerator.device_count()
            places = [place_of(module.get_device_properties(i), i) for i in range(count)]
            self._settings = [settings_of(self.kind, place) for place in places]
        return self._settings

    def telemetry(self) -> dict[str, Any]:
        """Return what the vendor's own interface tells of clock, power, temperature and throttling."""
        if self._read is None:
            module = getattr(self._torch, self.torch_type)
            place = place_of(module.get_device_properties(self.index), self.index)
            self._read = telemetry.reader(self.kind, index=self.index, uuid=place.uuid, pci=place.pci)
        return {**self._read(), "quota": self._quota.stopped() if self._quota is not None else None}


class FakeDevice:
    """Virtual time with known noise, drift and throttling; deterministic for a seed."""

    kind = "fake"
    torch_type = "cpu"
    no_graphs: str | None = "the fake device launches nothing"
    no_profiler: str | None = "the fake device computes nothing"

    def __init__(self, settings: Mapping[str, float], *, seed: int = 0) -> None:
        unknown = set(settings) - set(FAKE_DEFAULTS)
        if unknown:
            raise UserError(
                f"the fake device has no setting '{min(unknown)}'",
                expected=f"one of: {', '.join(FAKE_DEFAULTS)}",
            )
        self.settings = {**FAKE_DEFAULTS, **settings}
        self._now_ns = 0
        self.reseed(seed, launch=0)

    def reseed(self, seed: int, *, launch: int) -> None:
        """Begin a launch: draw its noise and go on along the drift; virtual time restarts."""
        self._random = random.Random(seed)
        self._launch = launch
        self._factors: dict[str, float] = {}
        self._last_stream: str | None = None
        """Whose data the caches hold."""
        self._now_ns = 0

    def clock_ns(self) -> int:
        """Read virtual time."""
        return self._now_ns

    def synchronize(self) -> None:
        """Do nothing: virtual work is finished when ``work`` returns."""

    def marks(self) -> Marks | None:
        """Return None: nothing of it is asynchronous."""
        return None

    def work(self, seconds: float, *, stream: str) -> None:
        """Advance virtual time by work that nominally takes ``seconds``.

        Args:
            seconds: Duration without noise.
            stream: Whose work it is; every stream draws its own launch factor, as a real process has its own layout.
        """
        settings = self.settings
        if stream not in self._factors:
            self._factors[stream] = math.exp(self._random.gauss(0.0, settings["launch_noise"]))
        factor = self._factors[stream] * math.exp(self._random.gauss(0.0, settings["sample_noise"]))
        factor *= 1.0 + settings["drift_per_launch"] * self._launch
        factor *= 1.0 + settings["drift_per_second"] * self._now_ns * 1e-9
        if self.throttled:
            factor *= settings["throttle_factor"]
        if stream != self._last_stream:
            factor *= settings["evict_factor"]
        self._last_stream = stream
        self._now_ns += round(seconds * factor * 1e9)

    @property
    def throttled(self) -> bool:
        """Tell whether the device has lowered its clock."""
        return self._now_ns * 1e-9 >= self.settings["throttle_after_s"]

    def describe(self) -> dict[str, Any]:
        """Return the noise model as the device's description."""
        settings = {k: (v if math.isfinite(v) else None) for k, v in self.settings.items()}
        return {"name": "fake", "count": 1, "memory_bytes": None, "settings": settings}

    def telemetry(self) -> dict[str, Any]:
        """Return a clock that falls when the device throttles."""
        clock = 1e9 / (self.settings["throttle_factor"] if self.throttled else 1.0)
        reasons = ["as programmed"] if self.throttled else []
        return {"clock_hz": clock, "throttle": reasons, "idle": False}


def kind_here() -> str | None:
    """Return which kind of accelerator torch sees: cuda, rocm, npu, plugin, or torch's name of another; None: none."""
    import torch  # noqa: PLC0415 - as above

    seen = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if seen is None:
        return None
    if getattr(torch.version, "hip", None):
        return "rocm"
    is_plugin = seen.type != "npu" and seen.type == torch._C._get_privateuse1_backend_name()
    return "plugin" if is_plugin else seen.type


def open_device(
    kind: str,
    *,
    index: int = 0,
    num_ranks: int = 1,
    shared: bool = False,
    fake: Mapping[str, float] | None = None,
) -> Device:
    """Return the adapter for a runner's ``device``.

    Args:
        kind: The device.
        index: This rank's number on its host.
        num_ranks: Ranks on this host; each needs an accelerator of its own.
        shared: Whether they may share what is there instead.
        fake: Noise model of the fake device.

    Raises:
        PrerequisiteError: The device or its torch build is missing.
    """
    if kind == "cpu":
        return CpuDevice()
    if kind == "fake":
        return FakeDevice(fake or {})
    return AcceleratorDevice(kind, index, num_ranks=num_ranks, shared=shared)


def cpu_model() -> str | None:
    """Return the processor's model name from the kernel, or None where it does not say."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    except OSError:
        return None
    return None


def _read_number(path: str) -> float | None:
    try:
        return float(Path(path).read_text())
    except (OSError, ValueError):
        return None
