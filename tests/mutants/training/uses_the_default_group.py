"""Wraps its model in the library's data parallelism on the harness's own group."""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="uses-the-default-group",
    family="training",
    implements=("data_parallel",),
    summary="wraps its model in the library's data parallelism on the harness's own group",
    properties={"exact": True, "replicas": "identical"},
)
class UsesTheDefaultGroup(FlatReplica):
    """Wraps its model in the library's data parallelism on the harness's own group."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.wrapped = torch.nn.parallel.DistributedDataParallel(task.model)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
