"""Lets queries see keys that come after them."""

from __future__ import annotations

from paceline.baselines.training import all_gather_sp
from paceline.baselines.training.all_gather_sp import AllGatherSP

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="sees-the-future",
    family="training",
    implements=("sequence_parallel",),
    summary="attends to what comes later",
    properties={"exact": True, "replicas": "identical"},
)
class SeesTheFuture(AllGatherSP):
    """A mask that hides nothing."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.sees_tT.fill_(True)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return all_gather_sp.cost(task)
