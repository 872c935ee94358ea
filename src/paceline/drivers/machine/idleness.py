"""Is the machine idle? What else computes on it, measured for a moment before a run begins.

The load average looks back a minute, also at the run that has just ended, so it is recorded and not judged. Judged are
processes that are not ours: what they compute now, and what they hold on accelerators.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from paceline.base.counting import number_of
from paceline.base.units import format_size
from paceline.drivers.machine.deviceuse import DeviceUse, device_uses
from paceline.worker.machine.cpu_quota import cpu_quota

SAMPLE_S = 0.25
BUSY_CORES = 0.5
"""A foreign process that computes on more of a core than this disturbs a run."""
BUSY_SHARE = 0.25
"""Foreign processes that together take more of the machine than this disturb a run."""
HELD_BYTES = 1 << 30
"""An idle driver holds less of an accelerator's memory than this."""
BUSY_DEVICE = 0.05
MAX_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyProcess:
    """A process that is not ours; command lines may hold secrets, so it is named by its program only."""

    pid: int
    name: str
    cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Idleness:
    """What was found before a run."""

    cores: int
    load_average: float
    foreign_cores: float
    processes: tuple[BusyProcess, ...]
    devices: tuple[DeviceUse, ...]
    devices_absent: str | None
    """Why nothing is known of accelerators."""
    quota_cores: float | None = None
    """Cores' worth of time that a control group leaves this process; None without a limit."""

    @property
    def limit(self) -> str | None:
        """Say that a control group stops this process again and again, or None: waiting does not end it."""
        if self.quota_cores is None or self.quota_cores >= self.cores:
            return None
        return (
            f"a quota leaves this process {self.quota_cores:g} of the time of {number_of(self.cores, 'core')} "
            "(a container's --cpus, or a scheduler's limit): what takes longer than that stands still in between"
        )

    @property
    def disturbances(self) -> list[str]:
        """Say what disturbs a run, one line each; none on an idle machine."""
        busy = [p for p in self.processes if p.cores > BUSY_CORES]
        found = [
            f"{p.name} (pid {p.pid}) computes on {number_of(p.cores, 'core', form='.1f')}"
            for p in busy[:MAX_NAMED]
        ]
        if not found and self.foreign_cores > BUSY_SHARE * self.cores:
            found.append(
                f"other processes compute on {self.foreign_cores:.1f} of {number_of(self.cores, 'core')}"
            )
        for device in self.devices:
            if (device.memory_bytes or 0) > HELD_BYTES:
                found.append(f"{format_size(device.memory_bytes or 0)} of {device.name} are held")
            if (device.busy or 0.0) > BUSY_DEVICE:
                found.append(f"{device.name} is {device.busy:.0%} busy")
        return found

    def facts(self) -> dict[str, Any]:
        """Return it as plain data for a record."""
        facts = asdict(self)
        for device in facts["devices"]:
            del device["uuid"]
        return {**facts, "disturbances": self.disturbances, "limit": self.limit}


def look(runner: Mapping[str, Any] | None = None, sample_s: float = SAMPLE_S) -> Idleness:
    """Look at this machine for a moment.

    Args:
        runner: The resolved profile: accelerators that it does not use, or cannot see, do not matter.
        sample_s: How long.
    """
    ours = _family()
    before = _times(ours)
    began = time.monotonic()
    time.sleep(sample_s)
    after = _times(ours)
    seconds = time.monotonic() - began
    # A process that began meanwhile counts with all that it computed.
    used = {pid: (spent - before.get(pid, (0.0, ""))[0], name) for pid, (spent, name) in after.items()}
    busy = [
        BusyProcess(pid=pid, name=name, cores=round(spent / seconds, 2))
        for pid, (spent, name) in used.items()
        if spent > 0.1 * seconds
    ]
    busy.sort(key=lambda p: -p.cores)
    profile = runner or {}
    devices, absent = device_uses(profile.get("device"), {**os.environ, **(profile.get("env") or {})})
    return Idleness(
        cores=len(os.sched_getaffinity(0)),
        load_average=os.getloadavg()[0],
        foreign_cores=round(sum(spent for spent, _ in used.values()) / seconds, 2),
        processes=tuple(busy[:MAX_NAMED]),
        devices=tuple(devices),
        devices_absent=absent,
        quota_cores=None if (quota := cpu_quota()) is None else quota.cores,
    )


def _family() -> set[int]:
    """Return the ids of this process, of those that started it, and of those that it started."""
    own = psutil.Process()
    try:
        return {own.pid, *(p.pid for p in own.parents()), *(p.pid for p in own.children(recursive=True))}
    except psutil.Error:
        return {own.pid}


def _times(ours: set[int]) -> dict[int, tuple[float, str]]:
    """Return the processor time of every other process, by id, with its name."""
    found = {}
    for process in psutil.process_iter(["cpu_times", "name"]):
        times = process.info["cpu_times"]
        if process.pid not in ours and times is not None:
            found[process.pid] = (times.user + times.system, str(process.info["name"]))
    return found
