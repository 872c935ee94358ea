"""Data parallelism whose device sleeps in each step: a harness that does not wait for it reads nothing of it."""

from __future__ import annotations

import torch
from paceline.baselines.training.ddp_ring import DdpRing, cost

from paceline import technique
from paceline.families.training.api.replica import Comm, Task

__all__ = ["SleepySteps", "cost"]


@technique(
    name="sleepy-steps",
    family="training",
    implements=("data_parallel",),
    summary="ddp-ring with a nap",
    properties={"exact": True, "replicas": "identical"},
)
class SleepySteps(DdpRing):
    """Lets the device sleep for 10 ms after the gradients were averaged."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.sleep = getattr(torch, task.device.type)._sleep

    def exchange_gradients(self, step: int) -> None:
        """Average and sleep."""
        super().exchange_gradients(step)
        self.sleep(10_000_000)
