"""Lets layers wait for an exchange of which a checkpoint knows nothing."""

from __future__ import annotations

from paceline.baselines.training.edit import Edit

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="forgets-what-waits",
    family="training",
    implements=("data_parallel",),
    summary="lets layers wait for an exchange of which a checkpoint knows nothing",
    properties={"exact": False, "replicas": "identical", "agree": "rounds"},
)
class ForgetsWhatWaits(Edit):
    """EDiT that loses a round when it is saved at its end."""

    def __init__(self, task: Task, comm: Comm, *, sync_every: int = 20) -> None:
        super().__init__(task, comm, sync_every=sync_every)
        del self.kept["waiting"]


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
