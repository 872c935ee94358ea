"""Never sends the embedding's new values to the head on the last rank."""

from __future__ import annotations

from paceline.baselines.training import one_f_one_b
from paceline.baselines.training.one_f_one_b import OneFOneB

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="keeps-an-old-head",
    family="training",
    implements=("pipeline_parallel",),
    summary="the head never changes",
    properties={"exact": True, "replicas": "identical"},
)
class KeepsAnOldHead(OneFOneB):
    """Right in the first step."""

    def exchange_parameters(self, step: int) -> None:
        """Send nothing."""


def cost(task: Task) -> Cost:
    """Return what the honest schedule sends."""
    return one_f_one_b.cost(task)
