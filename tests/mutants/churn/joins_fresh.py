"""Lets a newcomer begin at the untrained weights; after its first exchange it has the group's."""

from __future__ import annotations

from paceline.baselines.training import elastic_diloco
from paceline.baselines.training.elastic_diloco import ElasticDiLoCo

from paceline import technique
from paceline.families.training.api.place import Place, Wire


@technique(
    name="joins-fresh",
    family="training",
    implements=("churn",),
    summary="a newcomer trains what it brought",
)
class JoinsFresh(ElasticDiLoCo):
    """Fetch the state for the outer step alone."""

    def __init__(
        self, place: Place, *, sync_every: int = 5, outer_rate: float = 0.7, outer_momentum: float = 0.6
    ) -> None:
        super().__init__(place, sync_every=sync_every, outer_rate=outer_rate, outer_momentum=outer_momentum)

    def begin_round(self, step: int) -> int:
        """Keep the weights when the group is ahead."""
        brought = self.weights.clone()
        group = super().begin_round(step)
        if group != step:
            self.weights.copy_(brought)
        return group


def master(wire: Wire, num_peers: int) -> None:
    """Run the honest group."""
    elastic_diloco.master(wire, num_peers)
