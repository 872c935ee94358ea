"""Says that its replicas agree at the end of each round alone, and averages them in every step."""

from __future__ import annotations

from paceline.baselines.training.local_sgd import LocalSgd

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="meets-every-step",
    family="training",
    implements=("data_parallel",),
    summary="says that replicas agree at the end of each round alone, and averages them in every step",
    properties={"exact": False, "replicas": "apart", "agree": "rounds"},
)
class MeetsEveryStep(LocalSgd):
    """Local SGD without local steps."""

    def __init__(self, task: Task, comm: Comm, *, sync_every: int = 20) -> None:
        super().__init__(task, comm, sync_every=sync_every)

    def exchange_parameters(self, step: int) -> None:
        """Average, whatever the options say."""
        self.ring.run(self.flat.values)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
