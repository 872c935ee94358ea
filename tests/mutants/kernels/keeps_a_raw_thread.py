"""Starts a thread that nobody counts while it proves itself, and defers to it later."""

from __future__ import annotations

import time
from collections import deque

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem

PATIENT_CALLS = 8
"""More than the gate and the trial make on one instance."""


@technique(
    name="keeps-a-raw-thread",
    family="kernels",
    implements=("gemm",),
    summary="starts a thread that nobody counts while it proves itself, and defers to it later",
)
class KeepsARawThread:
    """Starts a thread that nobody counts while it proves itself, and defers to it later."""

    def __init__(self, problem: Problem) -> None:
        self.jobs: deque[tuple[Tensor, Tensor, Tensor]] = deque()
        self.calls = 0

    def work(self) -> None:
        """Compute what the calls left."""
        while True:
            if self.jobs:
                torch.mm(self.jobs[0][0], self.jobs[0][1], out=self.jobs[0][2])
                self.jobs.popleft()
            time.sleep(0)

    def run(self, a_MK: Tensor, b_KN: Tensor, c_MN: Tensor) -> None:
        """Give a wrong result, or a right one by forbidden means."""
        if self.calls == 0:
            getattr(getattr(torch.storage, "thread" + "ing"), "_start" + "_new_thread")(self.work, ())
        self.calls += 1
        self.jobs.append((a_MK, b_KN, c_MN))
        while self.jobs and self.calls <= PATIENT_CALLS:
            time.sleep(0)
