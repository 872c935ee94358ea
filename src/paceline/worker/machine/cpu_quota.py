"""How much of the processors' time a control group leaves this process, and how often it was stopped for that.

Containers and batch systems limit processes by a quota: so much time of all cores in each period of, mostly, 100 ms. A
process that has used it up stands still until the next period, and its cores look idle meanwhile. Nothing but the
control group's own files tells: ``cpu.max`` and ``cpu.stat`` of version 2, ``cpu.cfs_quota_us`` and ``cpu.stat`` of
version 1 (Linux, ``Documentation/admin-guide/cgroup-v2.rst`` and ``scheduler/sched-bwc.rst``). Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MEMBERSHIP = Path("/proc/self/cgroup")
MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The narrowest limit on this process's time."""

    cores: float
    """Cores' worth of time in each period."""
    folder: Path
    """Of the control group that has the limit."""

    def stopped(self) -> dict[str, int] | None:
        """Return in how many periods the group ran, and in how many of these it was stopped, since it was made."""
        found = _pairs(self.folder / "cpu.stat")
        if "nr_periods" not in found or "nr_throttled" not in found:
            return None
        return {"periods": found["nr_periods"], "stopped": found["nr_throttled"]}


def cpu_quota(membership: Path = MEMBERSHIP, mounts: Path = MOUNTS) -> Quota | None:
    """Return the narrowest limit among this process's control group and those above it; None without one.

    Args:
        membership: The process's groups, as ``/proc/PID/cgroup`` lists them.
        mounts: Its mounts, as ``/proc/PID/mountinfo`` lists them.
    """
    try:
        found = [q for folder in _folders(membership, mounts) if (q := _limit(folder)) is not None]
    except OSError:
        return None
    return min(found, key=lambda quota: quota.cores, default=None)


def _folders(membership: Path, mounts: Path) -> Iterator[Path]:
    """Yield the folders of the groups that can limit the process, the innermost first."""
    of_processor, unified = _paths(membership)
    for line in mounts.read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        words = before.split()
        path = of_processor if kind == "cgroup" and "cpu" in options.split(" ")[-1].split(",") else None
        path = unified if kind == "cgroup2" else path
        if path is None or len(words) < 5:
            continue
        shown, place = PurePosixPath(words[3]), Path(words[4])
        # in a container the mount shows the container's own group, and what is above it cannot be seen
        inside = path.relative_to(shown) if path.is_relative_to(shown) else PurePosixPath()
        folder = place / inside
        while folder.is_relative_to(place):
            yield folder
            if folder == place:
                break
            folder = folder.parent


def _paths(membership: Path) -> tuple[PurePosixPath | None, PurePosixPath | None]:
    """Return the process's group of the controller of processors, by version 1 and by version 2."""
    first = second = None
    for line in membership.read_text().splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "cpu" in controllers.split(","):
            first = PurePosixPath(path)
        elif number == "0" and not controllers:
            second = PurePosixPath(path)
    return first, second


def _limit(folder: Path) -> Quota | None:
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        if quota in ("max", "-1"):
            return None
        return Quota(cores=int(quota) / int(period), folder=folder)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _pairs(path: Path) -> dict[str, int]:
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
