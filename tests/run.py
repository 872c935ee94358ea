"""Runs a suite of tests part by part, ends what hangs, and says what was red in its last lines.

    python tests/run.py gate
    python tests/run.py full --junit FOLDER

A part that stands still, or outlasts its limit, is red: the stacks of all its processes and the names of the tests
under way are printed, and everything that it started is ended, daemons included. What a test left behind does not
reach the next part either.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import under_way
from chaos import Chaos, delayed
from closing import TIMED_OUT, Machine, closing_lines

ROOT = Path(__file__).parents[1]
PR_SET_CHILD_SUBREAPER = 36
POLL_S = 1.0
STILL_S = 420.0
"""Without a test that begins or ends; a test of the gate may take 180 s."""
GRACE_S = 30.0
"""For what is under way to say what was red before it; pytest's workers have ten seconds of it."""
STACK_S = 10.0
"""For the stack of one process."""
MOST_STACKS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Tests that one pytest runs."""

    name: str
    arguments: tuple[str, ...]
    limit_s: float
    still_s: float = STILL_S
    threads: int | None = 1
    """Of torch in every process; two of each of two workers would wait, spinning, for cores that the others have."""


UNITS = ("tests/rules", "tests/unit", "tests/docs")
ELSEWHERE = ("tests", *(f"--ignore={folder}" for folder in UNITS))
ALONE = tuple(f"tests/{folder}" for folder in ("netns", "sandbox", "serving", "timing"))
"""Folders whose tests count what is on the machine, or ask for answers in time: one after another."""
OUTCOMES = "build/measured.json"
"""What was measured, with the commit and the machine."""
SPREAD = ("--numprocesses", "2", "--dist", "worksteal")
BY_FILE = ("--numprocesses", "2", "--dist", "loadfile")

# Limits are some six times what a part takes on two quiet cores (of an AMD EPYC: 9 minutes for the units; beside two
# busy loops twice that): a hang is told by nothing moving on, long before.
PARTS: dict[str, tuple[Part, ...]] = {
    "gate": (
        Part(name="units", arguments=(*UNITS, *SPREAD, "--maxfail=20"), limit_s=60 * 60),
        Part(name="engines", arguments=(*ELSEWHERE, *BY_FILE, "--maxfail=20"), limit_s=20 * 60),
    ),
    "full": (
        Part(name="units", arguments=(*UNITS, *SPREAD), limit_s=60 * 60),
        Part(
            name="engines",
            arguments=(*ELSEWHERE, *(f"--ignore={folder}" for folder in ALONE), *BY_FILE),
            limit_s=90 * 60,
            still_s=1200,
        ),
        Part(name="alone", arguments=ALONE, limit_s=30 * 60),
    ),
    "measured": (
        Part(name="measured", arguments=("tests", f"--outcomes={OUTCOMES}"), limit_s=90 * 60, threads=None),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a suite; return 0 where every part of it was green."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", choices=PARTS)
    parser.add_argument("--junit", type=Path, help="folder of a JUnit file for each part")
    parser.add_argument(
        "--chaos", type=int, metavar="SEED", help="stand processes still and take the cores meanwhile"
    )
    parser.add_argument("pytest", nargs="*", help="more arguments for pytest, after --")
    asked = parser.parse_args(arguments)
    adopt_orphans()
    end_when_asked()
    before = Machine.now()
    with tempfile.TemporaryDirectory(prefix="paceline-tests-") as folder:
        reports = asked.junit or Path(folder)
        reports.mkdir(parents=True, exist_ok=True)
        ends = {}
        for part in PARTS[asked.suite]:
            command = (
                *pytest_command(asked.suite, reports / f"{part.name}.xml"),
                *part.arguments,
                *asked.pytest,
            )
            ends[part.name] = run_part(part, command, chaos=asked.chaos)
        lines = closing_lines(ends, reports, before=before, now=Machine.now())
    print("\n".join(lines), flush=True)
    return 0 if all(code == 0 for code in ends.values()) else 1


def pytest_command(suite: str, report: Path) -> tuple[str, ...]:
    """Return how pytest is started; its report names files, so that a failed test can be named again."""
    report.unlink(missing_ok=True)
    return (
        sys.executable,
        "-m",
        "pytest",
        f"--suite={suite}",
        f"--junitxml={report}",
        "-o",
        "junit_family=xunit1",
    )


def run_part(part: Part, command: Sequence[str], *, chaos: int | None = None) -> int:
    """Run one part to its end or to its limit, and end what it started; return its exit code.

    Args:
        part: Its limits.
        command: What runs its tests.
        chaos: Seed of what makes the machine a bad one meanwhile; None for a machine as it is.
    """
    environment = dict(os.environ)
    if part.threads is not None:
        environment["OMP_NUM_THREADS"] = str(part.threads)
    with (
        tempfile.TemporaryDirectory(prefix="paceline-under-way-") as folder,
        tempfile.TemporaryDirectory(prefix="paceline-chaos-") as library,
    ):
        environment[under_way.FOLDER_VARIABLE] = folder
        if chaos is not None:
            environment = delayed(environment, Path(library))
        began = time.time()
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
        try:
            with contextlib.nullcontext() if chaos is None else Chaos(chaos, children):
                hung = wait(process, part, Path(folder), began)
            if hung:
                print(f"\n{part.name}: {hung}", flush=True)
                say_what_hangs(Path(folder))
                interrupt(process)
        finally:
            left = end_all()
    if left and not hung:
        print(f"{part.name}: ended what tests left running: {'; '.join(left)}", flush=True)
    return TIMED_OUT if hung else process.returncode


def wait(process: subprocess.Popen[bytes], part: Part, folder: Path, began: float) -> str | None:
    """Wait for a part's end; return why it is not waited for any longer, or None."""
    with deaths() as any_death:
        while True:
            reap(but=process.pid)
            if process.poll() is not None:
                return None
            now = time.time()
            if now - began > part.limit_s:
                return f"it took more than {part.limit_s:.0f} s"
            still_s = now - (under_way.latest_s(folder) or began)
            if still_s > part.still_s:
                return f"no test began or ended for {still_s:.0f} s"
            select.select([any_death], [], [], POLL_S)
            with contextlib.suppress(BlockingIOError):
                any_death.recv(4096)


@contextlib.contextmanager
def deaths() -> Iterator[socket.socket]:
    """Give a socket that can be read when a child has ended: what tests end must not be seen as a zombie for long."""
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        before = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, before)


def reap(*, but: int = 0) -> None:
    """Take leave of children that have ended, as init does; ``but`` that one, whose exit code somebody waits for."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == but:
            return
        os.waitpid(found.si_pid, 0)


def say_what_hangs(folder: Path) -> None:
    """Print the tests under way, and the stacks of all processes below this one."""
    for pid, nodeid in under_way.named(folder).items():
        print(f"under way in process {pid}: {nodeid}")
    for child in children()[:MOST_STACKS]:
        with contextlib.suppress(psutil.Error):
            print(f"\nprocess {child.pid} ({child.status()}): {' '.join(child.cmdline())[:200]}")
        print(stack_of(child.pid), flush=True)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Interrupt what runs tests, so that it tells what was red so far and writes its report, and wait for that."""
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)


def stack_of(pid: int) -> str:
    """Return the stack of a Python process, or why there is none."""
    command = [str(Path(sys.executable).with_name("py-spy")), "dump", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=STACK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no stack: {error}"
    return done.stdout or f"no stack: {done.stderr.strip()[:200]}"


def end_when_asked() -> None:
    """Let a request to end this process end all that it started, too: pytest would go on without it."""

    def ended(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended)


def adopt_orphans() -> None:
    """Let what loses its parent become a child of this process, so that it can be found and ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[psutil.Process]:
    """Return all processes below this one that still run."""
    return [p for p in psutil.Process().children(recursive=True) if _alive(p)]


def end_all() -> list[str]:
    """End every process below this one; return what they were."""
    ended: list[str] = []
    for _ in range(100):
        found = children()
        for child in found:
            with contextlib.suppress(psutil.Error):
                ended.append(" ".join(child.cmdline())[:80] or child.name())
                child.send_signal(signal.SIGKILL)
        reap()
        if not found:
            break
        time.sleep(0.05)
    return list(dict.fromkeys(ended))


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


if __name__ == "__main__":
    sys.exit(main())
