"""The last lines of a run of tests: what was red and why, on which machine, and what runs it again."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

MOST_FAILURES = 6
"""Told with their reasons; of more only the names."""
MOST_NAMES = 14
REASON_LINES = 2
WIDTH = 200
TIMED_OUT = 124
"""Exit code of a part that outlasted its limit, as of ``timeout``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a machine was doing at one moment."""

    load: float
    """Processes that wanted a core, averaged over a minute."""
    ticks: tuple[int, ...]
    """Of all cores in /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; empty elsewhere."""

    @classmethod
    def now(cls) -> Machine:
        """Look."""
        return cls(load=os.getloadavg()[0], ticks=_ticks())


def closing_lines(ends: Mapping[str, int], reports: Path, *, before: Machine, now: Machine) -> list[str]:
    """Return what a reader of the last lines needs.

    Args:
        ends: Exit code of each part.
        reports: Folder of the parts' JUnit files.
        before: The machine when the run began.
        now: The machine at its end.
    """
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failures: list[tuple[str, str]] = []
    lines = ["", "-" * 80]
    for part, code in ends.items():
        report = reports / f"{part}.xml"
        if not report.exists():
            lines.append(f"{part}: ended without a report, exit code {code}; what hung is told above")
            continue
        for status, name, reason in _cases(report):
            counts[status] += 1
            if status == "failed":
                failures.append((name, reason))
        if code == TIMED_OUT:
            lines.append(
                f"{part}: ended at its limit; what was under way is told above, and no test after it ran"
            )
        elif code and not any(status == "failed" for status, _, _ in _cases(report)):
            lines.append(f"{part}: no test failed, but its exit code is {code}; see its output above")
    for name, reason in failures[:MOST_FAILURES]:
        lines += [f"FAILED {name}", *(f"    {line[:WIDTH]}" for line in _telling(reason))]
    lines += [f"FAILED {name}" for name, _ in failures[MOST_FAILURES:MOST_NAMES]]
    if len(failures) > MOST_NAMES:
        lines.append(f"and {len(failures) - MOST_NAMES} more")
    if failures:
        lines.append(f"again: make test TESTS='{failures[0][0]}'")
    lines.append(_machine_line(before, now))
    lines.append(", ".join(f"{count} {status}" for status, count in counts.items()))
    return lines


def _cases(report: Path) -> Iterator[tuple[str, str, str]]:
    """Yield status, name and reason of every test of a JUnit file."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.get("file") is None:
            continue  # it was under way when somebody ended the run, and came to nothing
        found = [child for child in case if child.tag in ("failure", "error", "skipped")]
        if not found:
            yield "passed", _name(case), ""
        elif found[0].tag == "skipped":
            yield "skipped", _name(case), ""
        else:
            yield "failed", _name(case), "\n".join(f"{f.get('message', '')}\n{f.text or ''}" for f in found)


def _name(case: ElementTree.Element) -> str:
    """Return a test's name as pytest takes it."""
    file, parts = case.get("file", ""), case.get("classname", "").split(".")
    classes = parts[len(Path(file).with_suffix("").parts) :]
    return "::".join([file, *classes, case.get("name", "")])


def _telling(reason: str) -> list[str]:
    """Return the lines of a failure that name the values, and the seed."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    first = lines[:1]
    values = [line[1:].strip() for line in lines if line.startswith("E ") and line[1:].strip() not in first]
    seeds = [line for line in lines if line.startswith("--seed ")]
    return [*first, *values[: REASON_LINES - 1], *seeds[:1]]


def _machine_line(before: Machine, now: Machine) -> str:
    spent = [b - a for a, b in zip(before.ticks, now.ticks, strict=True)]
    shares = ""
    if spent and sum(spent):
        idle, stolen = (spent[3] + spent[4]) / sum(spent), spent[7] / sum(spent)
        shares = f"; {idle:.0%} of the cores' time was idle, {stolen:.1%} was stolen by other guests"
    load = f"load {before.load:.1f} before, {now.load:.1f} after"
    return (
        f"machine: {processor()}, {os.cpu_count()} cores, Python {platform.python_version()}; {load}{shares}"
    )


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _ticks() -> tuple[int, ...]:
    try:
        first = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return ()
    return tuple(int(value) for value in first.split()[1:9])
