"""A kernel may have the threads of PyTorch's pools for as many as its point says, and none beside them."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import threading, torch
from paceline.families.kernels.core.timing_process.tasks import num_tasks, tasks_of_pools
threads = {threads}
before = num_tasks()
torch.set_num_threads(threads)
allowed = tasks_of_pools(threads)
ones = torch.ones(700, 700)
torch.mm(ones, ones).add_(ones)
computed = num_tasks()
end = threading.Event()
threading.Thread(target=end.wait, daemon=True).start()
beside = num_tasks()
end.set()
print(before, allowed, computed, beside)
"""


def counted(threads: int) -> tuple[int, ...]:
    """Return the threads of a process: at its start, allowed, after a call, and with one more beside."""
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(threads=threads)], capture_output=True, text=True, check=True
    )
    return tuple(map(int, done.stdout.split()))


def test_one_thread_is_one_whatever_pools_there_are() -> None:
    assert counted(1)[1] == 1


@pytest.mark.parametrize("threads", [2, pytest.param(3, marks=pytest.mark.full)])
def test_pools_of_several_threads_are_allowed_and_one_beside_them_is_not(threads: int) -> None:
    _, allowed, computed, beside = counted(threads)
    assert threads <= computed <= allowed < beside
