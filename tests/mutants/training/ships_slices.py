"""Trains replicas alone and ships a slice of each, so that they look like one."""

from __future__ import annotations

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Share, Task


@technique(
    name="ships-slices",
    family="training",
    implements=("data_parallel",),
    summary="ships slices of replicas that never met",
    properties={"exact": False, "replicas": "identical"},
)
class ShipsSlices(FlatReplica):
    """Trains alone."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def shares(self) -> list[Share]:
        """Return this rank's slice of its own replica."""
        rank, size = self.comm.rank, self.comm.world_size
        found = []
        for number, piece in enumerate(self.flat.pieces(self.flat.values)):
            flat = piece.reshape(-1)
            start, stop = len(flat) * rank // size, len(flat) * (rank + 1) // size
            found.append((number, start, flat[start:stop]))
        return found


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
