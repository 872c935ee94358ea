"""Counts what a technique may have left running: native threads of this process, and processes of its own."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import torch

POOL_SIDE = 512
"""Rows and columns of a product that PyTorch shares out among its threads."""


def num_tasks() -> int:
    """Return the number of this process's threads, native ones included."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - the fastest way, inside a pass
    except OSError:
        return threading.active_count()


def tasks_of_pools(threads: int) -> int:
    """Return how many threads this process has when PyTorch computes with so many, before a technique is loaded.

    PyTorch keeps more than one pool of threads, one of them for OpenMP, so that two threads that compute are three.
    """
    if threads > 1:
        # A pool begins its threads with the first call that it shares out.
        ones = torch.ones(POOL_SIDE, POOL_SIDE)
        torch.mm(ones, ones).add_(ones)
        return max(threads, num_tasks())
    return threads


def has_children() -> bool:
    """Tell whether this process's first thread has started a process that still lives."""
    try:
        return bool(Path(f"/proc/self/task/{os.getpid()}/children").read_text())
    except OSError:
        return False
