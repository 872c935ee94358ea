"""Says after the fourth round that a fifth one is done, too: a run of fewer steps."""

from __future__ import annotations

from paceline.baselines.training import elastic_diloco
from paceline.baselines.training.elastic_diloco import ElasticDiLoCo

from paceline import technique
from paceline.families.training.api.place import Place, Wire


@technique(
    name="counts-ahead",
    family="training",
    implements=("churn",),
    summary="leaves a round out and counts it",
)
class CountsAhead(ElasticDiLoCo):
    """Skip a round on all peers alike."""

    def __init__(
        self, place: Place, *, sync_every: int = 5, outer_rate: float = 0.7, outer_momentum: float = 0.6
    ) -> None:
        super().__init__(place, sync_every=sync_every, outer_rate=outer_rate, outer_momentum=outer_momentum)

    def begin_round(self, step: int) -> int:
        """Tell more steps than there were."""
        group = super().begin_round(step)
        return group + 5 if group == 20 else group


def master(wire: Wire, num_peers: int) -> None:
    """Run the honest group."""
    elastic_diloco.master(wire, num_peers)
