"""Goes on by itself when a peer was lost: each survivor takes the outer step on its own displacement."""

from __future__ import annotations

from paceline.baselines.training import elastic_diloco
from paceline.baselines.training.elastic_diloco import ElasticDiLoCo

from paceline import technique
from paceline.families.training.api.place import Place, Wire
from paceline.families.training.api.rounds import nesterov_


@technique(
    name="goes-on-alone",
    family="training",
    implements=("churn",),
    summary="averages while all are there, and not afterwards",
)
class GoesOnAlone(ElasticDiLoCo):
    """Ask the others, and take no notice of them when they are fewer."""

    def __init__(
        self, place: Place, *, sync_every: int = 5, outer_rate: float = 0.7, outer_momentum: float = 0.6
    ) -> None:
        super().__init__(place, sync_every=sync_every, outer_rate=outer_rate, outer_momentum=outer_momentum)

    def exchange(self) -> tuple[int, ...]:
        """Use the sum only where nobody is missing."""
        own = self.slow - self.weights
        total = own.clone()
        members = self.group.all_reduce(total)
        outer = total.div_(len(members)) if len(members) == 3 else own
        nesterov_(self.slow, self.momentum, outer, rate=self.outer_rate, momentum_share=self.outer_momentum)
        self.weights.copy_(self.slow)
        return members


def master(wire: Wire, num_peers: int) -> None:
    """Run the honest group."""
    elastic_diloco.master(wire, num_peers)
