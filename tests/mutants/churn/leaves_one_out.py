"""Names three members and averages the displacements of two: the work of one is lost, and all weights are equal."""

from __future__ import annotations

from paceline.baselines.training import elastic_diloco
from paceline.baselines.training.elastic_diloco import ElasticDiLoCo

from paceline import technique
from paceline.families.training.api.place import Place, Wire


@technique(
    name="leaves-one-out",
    family="training",
    implements=("churn",),
    summary="peer 1 contributes nothing",
)
class LeavesOneOut(ElasticDiLoCo):
    """Put the global weights in place of what peer 1 trained."""

    def __init__(
        self, place: Place, *, sync_every: int = 5, outer_rate: float = 0.7, outer_momentum: float = 0.6
    ) -> None:
        super().__init__(place, sync_every=sync_every, outer_rate=outer_rate, outer_momentum=outer_momentum)
        self.peer = place.peer

    def exchange(self) -> tuple[int, ...]:
        """Average without peer 1's displacement."""
        if self.peer == 1:
            self.weights.copy_(self.slow)
        return super().exchange()


def master(wire: Wire, num_peers: int) -> None:
    """Run the honest group."""
    elastic_diloco.master(wire, num_peers)
