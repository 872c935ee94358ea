"""Compresses with errors that a checkpoint does not hold."""

from __future__ import annotations

from paceline.baselines.collectives.onebit import OneBit
from paceline.baselines.training.one_bit_adam import OneBitAdam

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="forgets-its-errors",
    family="training",
    implements=("data_parallel",),
    summary="compresses with errors that a checkpoint does not hold",
    properties={"exact": False, "replicas": "identical"},
)
class ForgetsItsErrors(OneBitAdam):
    """1-bit Adam that saves the errors of a compressor which it does not use."""

    def __init__(self, task: Task, comm: Comm, *, warmup_share: float = 0.14) -> None:
        super().__init__(task, comm, warmup_share=warmup_share)
        self.compressed = [OneBit(task.problem("all_reduce", self.flat.values.numel()), comm)]


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
