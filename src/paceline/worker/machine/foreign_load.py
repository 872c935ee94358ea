"""What else took the machine while a launch ran: other processes, and other guests of the host.

A launcher reads ``/proc`` before and after a launch, from outside its ranks. Nothing is read while they measure. Where
others took cores that the ranks waited for, the launch is *disturbed*: which technique that slows more is chance, so
that an effect can turn around instead of growing wider. Standard library only; other systems than Linux tell nothing.

Sources: proc(5), ``/proc/stat`` and ``/proc/PID/stat``; pressure of processors, Linux ``accounting/psi.rst``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.counting import number_of

PROC = Path("/proc")
SHORTEST_S = 0.3
"""The kernel counts in ticks of a hundredth of a second: of less time they tell nothing."""
MOST_OTHERS = 0.15
"""Cores that others may take: daemons and a desktop."""
MOST_OTHERS_SHARE = 0.05
"""Share of the cores that others may take on a machine with many."""
MOST_WAITING = 0.05
"""Share of the time in which a process that could run had no core; below, the others used cores that nobody needed."""
MOST_STOLEN = 0.02
"""Share of the cores' time that the host may give to other guests."""
MOST_NAMED = 3
LEAST_NAMED = 0.05
"""Cores that a process takes to be named."""
_KERNEL = 2
"""The process whose children are the kernel's own threads."""
_USER, _NICE, _SYSTEM, _STEAL = 0, 1, 2, 7
"""Places in a line of ``/proc/stat``. Interrupts are left out: they serve whoever sent and received."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTime:
    """A process at one moment."""

    name: str
    parent: int
    own_s: float
    ended_s: float
    """Of children that have ended and were waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the processors had done at one moment, in seconds since they were started."""

    at_s: float
    cores: int
    busy_s: float
    """In processes, on the cores that this process may use."""
    stolen_s: float
    waiting_s: float | None
    """In which at least one process had no core; None where the kernel does not tell."""
    processes: Mapping[int, ProcessTime]


def read(
    proc: Path = PROC, *, cores: frozenset[int] | None = None, at_s: float | None = None
) -> Reading | None:
    """Read what processors and processes have done so far; None on a system that does not tell.

    Args:
        proc: Where the kernel tells it.
        cores: Which cores count; None for those that this process may use.
        at_s: The moment, in seconds; None for now.
    """
    try:
        mine = frozenset(os.sched_getaffinity(0)) if cores is None else cores
        lines = [line.split() for line in (proc / "stat").read_text().splitlines() if line.startswith("cpu")]
        ticks = [
            list(map(int, line[1:])) for line in lines if line[0][3:].isdigit() and int(line[0][3:]) in mine
        ]
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        return Reading(
            at_s=time.monotonic() if at_s is None else at_s,
            cores=len(ticks),
            busy_s=tick_s * sum(row[_USER] + row[_NICE] + row[_SYSTEM] for row in ticks),
            stolen_s=tick_s * sum(row[_STEAL] for row in ticks),
            waiting_s=waiting_s(proc),
            processes=_processes(proc, tick_s),
        )
    except (OSError, AttributeError, ValueError, IndexError):
        return None


def waiting_s(proc: Path = PROC) -> float | None:
    """Return for how long at least one process that could run had no core so far; None where nobody can tell."""
    try:
        lines = (proc / "pressure" / "cpu").read_text().splitlines()
        some = next(line for line in lines if line.startswith("some"))
        return int(some.rpartition("total=")[2]) * 1e-6
    except (OSError, StopIteration, ValueError):
        return None


def _processes(proc: Path, tick_s: float) -> dict[int, ProcessTime]:
    found = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # the name stands in brackets and may hold brackets itself
            name, _, rest = (folder / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
        except OSError:
            continue  # it has ended meanwhile
        words = rest.split()
        user, system, ended_user, ended_system = map(int, words[11:15])
        found[int(folder.name)] = ProcessTime(
            name=name,
            parent=int(words[1]),
            own_s=tick_s * (user + system),
            ended_s=tick_s * (ended_user + ended_system),
        )
    return found


def load_between(
    before: Reading | None, after: Reading | None, *, pid: int | None = None
) -> dict[str, Any] | None:
    """Say what others took between two readings, as plain data for an event; None where nobody can tell.

    Ours are a process, all that descends from it at either reading, and those that started it.

    Args:
        before: The first reading.
        after: The second.
        pid: The process; None for this one.

    Returns:
        ``seconds``; ``cores``; ``others_cores``, which others took; ``stolen`` and ``waiting``, shares of the time;
        ``processes``, those of others that took most; ``disturbed``.
    """
    if before is None or after is None or after.at_s - before.at_s < SHORTEST_S or not after.cores:
        return None
    seconds, cores, root = after.at_s - before.at_s, after.cores, os.getpid() if pid is None else pid
    ours = _ours_s(before, after, root) + _kernel_s(before, after)
    others = round(max(after.busy_s - before.busy_s - ours, 0.0) / seconds, 3)
    stolen = round(max(after.stolen_s - before.stolen_s, 0.0) / (seconds * cores), 4)
    waiting = None
    if before.waiting_s is not None and after.waiting_s is not None:
        waiting = round((after.waiting_s - before.waiting_s) / seconds, 3)
    load = {
        "seconds": round(seconds, 3),
        "cores": cores,
        "others_cores": others,
        "stolen": stolen,
        "waiting": waiting,
        "processes": _largest(before, after, root),
    }
    return {**load, "disturbed": is_disturbed(load)}


def is_disturbed(load: Mapping[str, Any], *, waiting: float | None = None) -> bool:
    """Tell whether others took what was needed.

    Args:
        load: What others took of a launch (``load_between``).
        waiting: Share of the time of a part of the launch in which a process had no core; None takes the launch's.
    """
    if waiting is not None:
        load = {**load, "waiting": waiting}
    taken = load["others_cores"] > max(MOST_OTHERS, MOST_OTHERS_SHARE * load["cores"])
    waited = load["waiting"] is None or load["waiting"] > MOST_WAITING
    return (taken and waited) or load["stolen"] > MOST_STOLEN


def who(load: Mapping[str, Any]) -> str:
    """Name who took the machine: ``stress took 1.9 of 2 cores``; command lines may hold secrets and are not named."""
    said = []
    if load["stolen"] > MOST_STOLEN:
        said.append(f"the host gave {load['stolen']:.0%} of the time to other guests")
    if load["others_cores"] > max(MOST_OTHERS, MOST_OTHERS_SHARE * load["cores"]):
        names = ", ".join(dict.fromkeys(process["name"] for process in load["processes"]))
        said.append(
            f"{names or 'other processes'} took {load['others_cores']:.1f} of {number_of(load['cores'], 'core')}"
        )
    return "; ".join(said) or "nobody"


def worst(loads: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the load of the node that was disturbed most; None where none can tell."""
    known = [load for load in loads if load is not None]
    return max(
        known, key=lambda load: (load["disturbed"], load["stolen"], load["others_cores"]), default=None
    )


def _family(reading: Reading, root: int) -> tuple[set[int], set[int]]:
    """Return a process with all that descend from it, and those that it descends from."""
    children: dict[int, list[int]] = {}
    for pid, process in reading.processes.items():
        children.setdefault(process.parent, []).append(pid)
    below, left = set(), [root]
    while left:
        pid = left.pop()
        below.add(pid)
        left += [child for child in children.get(pid, ()) if child not in below]
    above, pid = set(), root
    while pid in reading.processes and reading.processes[pid].parent not in above:
        pid = reading.processes[pid].parent
        above.add(pid)
    return below, above


def _ours_s(before: Reading, after: Reading, root: int) -> float:
    """Return what ours have taken between two readings, of those that ended meanwhile as far as ours waited for them.

    One that its parent did not wait for takes its time away with it: what it had at the first reading is no loss of
    ours, and what it took since counts with others.
    """
    then, now = before.processes, after.processes
    below_then, above = _family(before, root)
    ours = below_then | _family(after, root)[0]
    # what ended below counts with whoever waited for it; above, that would be others' children as well
    taken = {p: _since(now[p].ended_s, then[p].ended_s if p in then else 0.0) for p in ours & now.keys()}
    # its time of before has come to whoever waited for it, and is none of this launch
    for pid in below_then - now.keys():
        reaper = then[pid].parent
        while reaper not in now and reaper in then:
            reaper = then[reaper].parent
        if reaper in taken:
            taken[reaper] = _since(taken[reaper], then[pid].own_s + then[pid].ended_s)
    own = sum(_since(now[p].own_s, then[p].own_s if p in then else 0.0) for p in (ours | above) & now.keys())
    return own + sum(taken.values())


def _since(now_s: float, then_s: float) -> float:
    """Return what was added; nothing where a number was given to another process meanwhile."""
    return max(now_s - then_s, 0.0)


def _kernel_s(before: Reading, after: Reading) -> float:
    """Return what the kernel's threads have taken; those that ended meanwhile take what they had with them."""
    then = before.processes
    return sum(
        _since(process.own_s, then[pid].own_s if pid in then else 0.0)
        for pid, process in after.processes.items()
        if process.parent == _KERNEL
    )


def _largest(before: Reading, after: Reading, root: int) -> list[dict[str, Any]]:
    (then, above), (below, _) = _family(before, root), _family(after, root)
    seconds = after.at_s - before.at_s
    taken: list[dict[str, Any]] = []
    for pid, process in after.processes.items():
        if pid in then | below | above or process.parent == _KERNEL:
            continue
        first = before.processes.get(pid)
        cores = (process.own_s - (first.own_s if first is not None else 0.0)) / seconds
        if cores > LEAST_NAMED:
            taken.append({"name": process.name, "pid": pid, "cores": round(cores, 2)})
    return sorted(taken, key=lambda process: float(process["cores"]), reverse=True)[:MOST_NAMED]
