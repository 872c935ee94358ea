"""Exchanges and applies the gradients of two steps in every other one, and nothing in the steps between."""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Replica, Task


@technique(
    name="two-steps-at-once",
    family="training",
    implements=("data_parallel",),
    summary="exchanges and applies the gradients of two steps at once",
    properties={"exact": True, "replicas": "identical"},
)
class TwoStepsAtOnce(Replica):
    """Pays for one exchange in two steps."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.kept: list[Tensor] = []

    def exchange_gradients(self, step: int) -> None:
        """Keep gradients, or average those of two steps."""
        own = [p.grad for p in self.model.parameters() if p.grad is not None]
        if not self.kept:
            self.kept = [gradient.clone() for gradient in own]
            return
        for gradient, kept in zip(own, self.kept, strict=True):
            gradient.add_(kept)
            self.comm.backend.all_reduce(gradient)
            gradient.div_(2 * self.comm.world_size)
        self.kept = []

    def update(self, step: int) -> None:
        """Apply what was averaged, as the steps that it is of would."""
        if not self.kept:
            super().update(step)
            super().update(step)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
