"""Gradients averaged by one all-reduce, and by two."""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Replica, Task


class Averaged(Replica):
    """Lay all gradients into one buffer and average it in equal parts."""

    num_parts = 1

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.buffer = torch.empty(task.num_parameters)

    def exchange_gradients(self, step: int) -> None:
        """Average the gradients over ranks."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        parts = self.buffer.split([g.numel() for g in gradients])
        for part, gradient in zip(parts, gradients, strict=True):
            part.copy_(gradient.flatten())
        for part in self.buffer.tensor_split(self.num_parts):
            self.comm.backend.all_reduce(part)
        self.buffer.div_(self.comm.world_size)
        for part, gradient in zip(parts, gradients, strict=True):
            gradient.copy_(part.view_as(gradient))


@technique(
    name="toy-once",
    family="training",
    implements=("toy",),
    summary="one all-reduce",
    properties={"exact": True, "replicas": "identical"},
)
class Once(Averaged):
    """One all-reduce."""


@technique(
    name="toy-twice",
    family="training",
    implements=("toy",),
    summary="two all-reduces",
    properties={"exact": True, "replicas": "identical"},
)
class Twice(Averaged):
    """Two all-reduces."""

    num_parts = 2


def cost(task: Task) -> Cost:
    """Return what is handed over in a run."""
    return Cost(backend_bytes=4 * task.num_parameters * task.steps)
