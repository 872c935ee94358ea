"""Says that every rank owns a part of every weight, so that the harness's sum would average its replicas."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Share, Task


@technique(
    name="averages-in-shares",
    family="training",
    implements=("data_parallel",),
    summary="lets the harness average its replicas",
    properties={"exact": False, "replicas": "identical"},
)
class AveragesInShares(FlatReplica):
    """Lets the harness average its replicas."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def shares(self) -> list[Share]:
        """Return a part of everything."""
        parts = self.flat.pieces(self.flat.values / self.comm.world_size)
        return [(number, 0, part.reshape(-1)) for number, part in enumerate(parts)]


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
