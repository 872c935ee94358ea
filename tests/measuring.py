"""Decides what a measured test has found: it holds, it does not hold, or this machine cannot tell now.

A test that passes holds. One that decides itself, by an interval (``side_by_side``), is believed at once, and one that
skips itself has told nothing. Any other that fails is measured again, with all its fixtures, three times at most: a
machine on which others compute gives no verdict on what is asked of its speed. It does not hold where it failed twice
while nobody else took the cores; where it failed and the machine was disturbed, nobody can tell.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

import psutil
import pytest
from _pytest.runner import runtestprotocol
from closing import processor

HOLDS, FAILS, CANNOT_TELL = "holds", "does not hold", "cannot tell now"
DECIDED = "decided"
"""The recorded property in which a test says its outcome itself."""
TRIES = 3
QUIET_FAILURES = 2
"""How often a test fails on a quiet machine before it is believed: one bad moment of a guest's host shows nowhere."""
MOST_OTHERS = 0.15
"""Cores that others may take on a quiet machine: daemons and a desktop."""
MOST_STOLEN = 0.02
"""Share of the cores' time that the host may give to other guests."""
SHORTEST_S = 0.2
"""What the kernel counts in ticks of a hundredth of a second says nothing of less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What processors had done at one moment, in seconds since they were started."""

    at_s: float
    busy_s: float
    """All processes, all cores."""
    stolen_s: float
    own_s: float
    """This process, and what it has started."""

    @classmethod
    def now(cls) -> Reading:
        """Look."""
        times = psutil.cpu_times()
        return cls(
            at_s=time.monotonic(),
            busy_s=times.user + times.nice + times.system + times.irq + times.softirq,
            stolen_s=getattr(times, "steal", 0.0),
            own_s=_own_s(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One run of a test with its fixtures."""

    passed: bool
    seconds: float
    others_cores: float
    """Cores that were taken by processes of others meanwhile."""
    stolen: float
    """Share of the cores' time that went to other guests."""
    reason: str = ""
    figures: dict[str, object] = field(default_factory=dict)
    """What the test recorded by ``record_property``: ``figures.Figures`` gives value, unit and bounds."""
    decided: str | None = None
    """The outcome, where the test itself has said it."""

    @property
    def quiet(self) -> bool:
        """Tell whether the machine was the test's own."""
        return self.others_cores <= MOST_OTHERS and self.stolen <= MOST_STOLEN


def between(before: Reading, after: Reading, cores: int) -> tuple[float, float, float]:
    """Return seconds, others' cores and the stolen share between two readings; zeros of what is too short to tell."""
    seconds = after.at_s - before.at_s
    if seconds < SHORTEST_S:
        return seconds, 0.0, 0.0
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    stolen = (after.stolen_s - before.stolen_s) / (seconds * cores)
    return seconds, round(max(others, 0.0) / seconds, 3), round(max(stolen, 0.0), 4)


def outcome_of(tries: list[Try]) -> str:
    """Return what the tries of a test say."""
    if tries[-1].decided is not None:
        return tries[-1].decided
    if tries[-1].passed:
        return HOLDS
    return FAILS if sum(t.quiet for t in tries) >= QUIET_FAILURES else CANNOT_TELL


def again(tries: list[Try]) -> bool:
    """Tell whether a test has to be measured again."""
    return tries[-1].decided is None and outcome_of(tries) == CANNOT_TELL and len(tries) < TRIES


class Measuring:
    """A plug-in of pytest that runs every test until it is decided, and writes what was found."""

    def __init__(self, path: Path, root: Path) -> None:
        self._path, self._root = path, root
        self._found: dict[str, dict[str, object]] = {}
        self._began_s = time.time()

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test, and again while nothing is decided; report its last try."""
        ihook = item.ihook
        ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        tries: list[Try] = []
        while True:
            before = Reading.now()
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            tries.append(_try_of(item, reports, before, Reading.now()))
            if not again(tries):
                break
            # what a module has measured once is measured again as well
            item.session._setupstate.teardown_exact(None)
            item.user_properties.clear()
            item._initrequest()  # type: ignore[attr-defined]
        outcome = outcome_of(tries)
        self._found[item.nodeid] = {"outcome": outcome, "tries": [asdict(t) for t in tries]}
        for report in reports:
            if outcome == CANNOT_TELL and report.failed:
                report.outcome = "skipped"
                report.longrepr = (str(item.path), item.location[1] or 0, _doubt(tries))
            ihook.pytest_runtest_logreport(report=report)
        ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_sessionfinish(self) -> None:
        """Write what was found, with the commit and the machine."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "commit": _git(self._root, "rev-parse", "HEAD"),
            "changed": bool(_git(self._root, "status", "--porcelain")),
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began_s)),
            "seconds": round(time.time() - self._began_s, 1),
            "machine": {
                "processor": processor(),
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "kernel": platform.release(),
            },
            "outcomes": self._found,
        }
        self._path.write_text(json.dumps(document, indent=1) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Count outcomes, and name those that are not green."""
        write = terminalreporter.write_line
        terminalreporter.section("measured")
        counts = dict.fromkeys((HOLDS, FAILS, CANNOT_TELL), 0)
        for nodeid, found in self._found.items():
            outcome = str(found["outcome"])
            counts[outcome] += 1
            if outcome != HOLDS:
                write(f"{outcome}: {nodeid}")
        write(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
        write(f"written to {self._path}")


def _try_of(item: pytest.Item, reports: list[pytest.TestReport], before: Reading, after: Reading) -> Try:
    failed, skipped = [r for r in reports if r.failed], [r for r in reports if r.skipped]
    figures = dict(item.user_properties)
    said = cast(str | None, figures.pop(DECIDED, CANNOT_TELL if skipped else None))
    seconds, others, stolen = between(before, after, os.cpu_count() or 1)
    reason = ""
    if failed:
        reason = str(getattr(failed[0].longrepr, "reprcrash", "") or failed[0].longrepr)[-400:]
    elif skipped and isinstance(skipped[0].longrepr, tuple):
        reason = skipped[0].longrepr[-1][-400:]
    return Try(
        passed=not failed and not skipped,
        seconds=round(seconds, 2),
        others_cores=others,
        stolen=stolen,
        reason=reason,
        figures=figures,
        # a test that says it holds, and fails in its fixtures' end, has not decided anything
        decided=None if said == HOLDS and failed else said,
    )


def _doubt(tries: list[Try]) -> str:
    others, stolen = max(t.others_cores for t in tries), max(t.stolen for t in tries)
    said = f"others took {others:.2f} cores and {stolen:.1%} of the time was stolen"
    return f"Skipped: {CANNOT_TELL}: it failed {len(tries)} times while {said}: {tries[-1].reason}"


def _own_s() -> float:
    total = 0.0
    process = psutil.Process()
    for one in (process, *process.children(recursive=True)):
        try:
            times = one.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()
