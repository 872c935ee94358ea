"""The bad machine does what its seed says, and leaves nobody standing still."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import chaos
import psutil
import pytest

SLEEPS = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeper() -> psutil.Process:
    process = subprocess.Popen(SLEEPS)
    yield psutil.Process(process.pid)
    process.kill()
    process.wait()


class Stops(threading.Event):
    """Stands in for the event that ends chaos: notes how a process was while it stood still, and waits for nothing."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__()
        self.process, self.seen = process, []

    def wait(self, timeout: float | None = None) -> bool:
        deadline = time.monotonic() + 60
        while self.process.status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
            time.sleep(0.01)
        self.seen.append((self.process.status(), timeout))
        return False


def test_the_same_seed_strikes_the_same_blows() -> None:
    first, again, other = (list(itertools.islice(chaos.blows(seed), 300)) for seed in (7, 7, 8))
    assert first == again != other
    for blow in first:
        assert 0 <= blow.choice < 1
        low, high = chaos.TAKEN_S if blow.takes_core else chaos.STILL_S
        assert low <= blow.seconds <= high
    assert 0.2 < sum(b.takes_core for b in first) / len(first) < 0.4


def test_a_process_stands_still_and_goes_on(sleeper: psutil.Process) -> None:
    over = Stops(sleeper)
    assert chaos.stand_still(sleeper, 0.3, over)
    assert over.seen == [(psutil.STATUS_STOPPED, 0.3)]
    assert sleeper.status() != psutil.STATUS_STOPPED


def test_a_process_that_a_test_has_stopped_stays_stopped(sleeper: psutil.Process) -> None:
    sleeper.suspend()
    Stops(sleeper).wait()
    assert not chaos.stand_still(sleeper, 0.3, threading.Event())
    assert sleeper.status() == psutil.STATUS_STOPPED


def test_chaos_strikes_until_it_is_over_and_its_loops_end_with_it(sleeper: psutil.Process) -> None:
    before = {p.pid for p in psutil.Process().children()}
    with chaos.Chaos(1, lambda: [sleeper]) as struck:
        deadline = time.monotonic() + 60
        while (struck.struck < 2 or not struck._loops) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert struck.struck >= 2
    assert sleeper.status() != psutil.STATUS_STOPPED
    assert {p.pid for p in psutil.Process().children()} == before


ACCEPTS = """
import socket, sys, time, os
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
print(server.getsockname()[1], flush=True)
began = time.monotonic()
server.accept()
told = time.monotonic() - began
began = time.monotonic()
with open(sys.argv[1], "w") as file:
    os.fsync(file.fileno())
print(told, time.monotonic() - began, flush=True)
"""


def test_connections_and_files_keep_a_process_waiting(tmp_path: Path) -> None:
    environment = chaos.delayed(os.environ, tmp_path)
    command = [sys.executable, "-c", ACCEPTS, str(tmp_path / "file")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline()))):
            told = [float(word) for word in process.stdout.readline().split()]
    assert min(told) >= chaos.DELAY_MS / 1000
