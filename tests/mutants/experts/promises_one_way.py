"""Says that rows travel to their experts alone."""

from __future__ import annotations

from paceline.baselines.training.ep_alltoall import ExpertAllToAll

from paceline import technique
from paceline.families.training.api.expert.replica import Shape, expert_cost
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="promises-one-way",
    family="training",
    implements=("expert_parallel",),
    summary="forgets the way back in its formula",
    properties={"exact": True, "replicas": "identical"},
)
class PromisesOneWay(ExpertAllToAll):
    """Honest but for its formula."""


def cost(task: Task) -> Cost:
    """Return half of the all-to-alls."""

    def of_layer(shape: Shape, step: int) -> tuple[int, int]:
        return 2 * (shape.ranks - 1) * shape.buffer_bytes // shape.ranks, 2 * (shape.ranks - 1)

    return expert_cost(task, of_layer)
