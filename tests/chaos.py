"""A bad machine, on purpose: stands processes still, takes the cores, and lets files and connections wait.

    make test CHAOS=7

What happens when follows from the seed alone, but not to whom: which processes there are, tests decide. The gate has to
stay green, since nothing in it asks a clock; what turns red is mended, or measured (docs/testing.md).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

DELAYS = Path(__file__).with_name("chaos_delays.c")
DELAY_MS = 200
"""Longer that each accept, fsync and fdatasync takes."""
STILL_S = (0.01, 0.5)
"""How long a process stands still."""
PAUSE_S = (0.05, 0.6)
"""Between two blows."""
TAKEN_S = (0.2, 2.0)
"""How long a busy loop has a core."""
LOOP = "import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: pass"
TAKES = 0.3
"""Share of blows that take a core; the others stand a process still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """What happens next."""

    after_s: float
    takes_core: bool
    seconds: float
    choice: float
    """In [0, 1): which of the processes there are."""


def blows(seed: int) -> Iterator[Blow]:
    """Yield what happens, without end; the same for the same seed."""
    draws = random.Random(seed)
    while True:
        takes = draws.random() < TAKES
        yield Blow(
            after_s=draws.uniform(*PAUSE_S),
            takes_core=takes,
            seconds=draws.uniform(*(TAKEN_S if takes else STILL_S)),
            choice=draws.random(),
        )


class Chaos:
    """Strikes the processes below this one until it is stopped.

    Args:
        seed: What happens when.
        processes: Gives those that there are.
    """

    def __init__(self, seed: int, processes: Callable[[], list[psutil.Process]]) -> None:
        self._blows, self._processes = blows(seed), processes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)
        self._loops: list[subprocess.Popen[bytes]] = []
        self.struck = 0

    def __enter__(self) -> Chaos:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; nothing stands still any more."""
        self._over.set()
        self._thread.join()
        for loop in self._loops:
            loop.kill()
            loop.wait()

    def _run(self) -> None:
        for blow in self._blows:
            if self._over.wait(blow.after_s):
                return
            if blow.takes_core:
                self._loops = [loop for loop in self._loops if loop.poll() is None]
                self._loops.append(
                    subprocess.Popen([sys.executable, "-c", LOOP.format(seconds=blow.seconds)])
                )
                continue
            loops = {loop.pid for loop in self._loops}
            found = [p for p in self._processes() if p.pid not in loops]
            if found and stand_still(found[int(blow.choice * len(found))], blow.seconds, self._over):
                self.struck += 1


def stand_still(process: psutil.Process, seconds: float, over: threading.Event) -> bool:
    """Stop a process and let it go on; leave one alone that a test has stopped itself."""
    with contextlib.suppress(psutil.Error):
        if process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE):
            return False
        process.send_signal(signal.SIGSTOP)
        over.wait(seconds)
        process.send_signal(signal.SIGCONT)
        return True
    return False


def delayed(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return an environment in which connections and files keep a process waiting, where there is a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return dict(environment)
    library = folder / "chaos_delays.so"
    options = ["-shared", "-fPIC", "-O1", f"-DDELAY_MS={DELAY_MS}", "-o", str(library), str(DELAYS), "-ldl"]
    subprocess.run([compiler, *options], check=True)
    before = os.environ.get("LD_PRELOAD")
    return {**environment, "LD_PRELOAD": f"{library} {before}" if before else str(library)}
