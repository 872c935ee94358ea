"""Would read the text that it is judged by."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.core.hub import cached


@technique(
    name="reads-the-hub",
    family="training",
    implements=("data_parallel",),
    summary="would read the text that it is judged by",
    properties={"exact": False, "replicas": "apart"},
)
class ReadsTheHub(FlatReplica):
    """Reads what is held out."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        self.known = cached


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
