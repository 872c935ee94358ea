"""Saves one rank's weights for all of them."""

from __future__ import annotations

from typing import Any

from paceline.baselines.training.local_sgd import LocalSgd

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="saves-rank-0",
    family="training",
    implements=("data_parallel",),
    summary="saves one rank's weights for all of them",
    properties={"exact": False, "replicas": "apart", "agree": "rounds"},
)
class SavesRank0(LocalSgd):
    """Local SGD with one checkpoint, as if ranks always agreed."""

    def __init__(self, task: Task, comm: Comm, *, sync_every: int = 20) -> None:
        super().__init__(task, comm, sync_every=sync_every)

    def state_dict(self) -> dict[str, Any]:
        """Return rank 0's weights, which it sends to the others."""
        given, first = self.flat.values.clone(), self.comm.rank == 0
        others = range(1, self.comm.world_size)
        self.comm.start(
            sends=[(given, peer) for peer in others] if first else [],
            receives=[] if first else [(given, 0)],
        ).wait()
        return super().state_dict() | {"weights": self.flat.pieces(given)}


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
