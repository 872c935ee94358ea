"""Adds ternary codes up and forgets to divide, which Adam does not mind."""

from __future__ import annotations

from paceline.baselines.training.terngrad import TernGrad

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="sums-ternary",
    family="training",
    implements=("data_parallel",),
    summary="adds ternary codes up and forgets to divide",
    properties={"exact": False, "replicas": "identical", "unbiased_with": {"clip_sigmas": 0.0}},
)
class SumsTernary(TernGrad):
    """TernGrad with gradients as many times too large as there are ranks."""

    def __init__(self, task: Task, comm: Comm, *, clip_sigmas: float = 2.5) -> None:
        super().__init__(task, comm, clip_sigmas=clip_sigmas)

    def exchange_gradients(self, step: int) -> None:
        """Sum."""
        self.ternary.run(self.flat.gradients)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
