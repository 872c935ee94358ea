"""Lets a rank that was away go on from the weights with which it left."""

from __future__ import annotations

from paceline.baselines.training import diloco
from paceline.baselines.training.diloco import DiLoCo

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="comes-back-stale",
    family="training",
    implements=("data_parallel",),
    summary="averages over those who are there and brings nobody up to date",
    properties={"exact": False, "replicas": "identical", "elastic": True},
)
class ComesBackStale(DiLoCo):
    """Changes the ring alone."""

    def change_members(self, step: int, members: tuple[int, ...]) -> None:
        """Average over those who are there."""
        self.members = members
        if self.comm.rank in members:
            self.ring = self._ring(members)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return diloco.cost(task, sync_every=20)
