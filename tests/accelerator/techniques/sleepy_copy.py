"""A copy whose device sleeps first: a harness that does not wait for the device reads nothing of it."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.problem import Problem


@technique(name="sleepy-copy", family="kernels", implements=("copy",), summary="a nap, then a copy")
class SleepyCopy:
    """Copies once the device has slept for 10 ms."""

    def __init__(self, problem: Problem) -> None:
        self.sleep = getattr(torch, problem.device.type)._sleep

    def run(self, source: Tensor, target: Tensor) -> None:
        """Sleep and copy."""
        self.sleep(10_000_000)
        target.copy_(source)
