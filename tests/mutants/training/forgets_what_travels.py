"""Exchanges in the background what a checkpoint does not hold."""

from __future__ import annotations

from paceline.baselines.training.co2 import CO2

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="forgets-what-travels",
    family="training",
    implements=("data_parallel",),
    summary="exchanges in the background what a checkpoint does not hold",
    properties={"exact": False, "replicas": "identical", "agree": "rounds"},
)
class ForgetsWhatTravels(CO2):
    """CO2 that loses the round under way when it is saved."""

    def __init__(self, task: Task, comm: Comm, *, sync_every: int = 20) -> None:
        super().__init__(task, comm, sync_every=sync_every)
        for name in ("outer", "late"):
            del self.kept[name]


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
