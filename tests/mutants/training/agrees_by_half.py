"""Says that its replicas agree at the end of each round, and averages the first half of them."""

from __future__ import annotations

from paceline.baselines.training.local_sgd import LocalSgd

from paceline import technique
from paceline.families.training.api.exchange import RingAverage
from paceline.families.training.api.replica import Comm, Cost, Task
from paceline.families.training.api.rounds import ends_round


@technique(
    name="agrees-by-half",
    family="training",
    implements=("data_parallel",),
    summary="says that replicas agree at the end of each round, and averages the first half of them",
    properties={"exact": False, "replicas": "apart", "agree": "rounds"},
)
class AgreesByHalf(LocalSgd):
    """Local SGD that leaves out a part of the parameters."""

    def __init__(self, task: Task, comm: Comm, *, sync_every: int = 20) -> None:
        super().__init__(task, comm, sync_every=sync_every)
        self.half = self.flat.values[: self.flat.values.numel() // 2]
        self.ring = RingAverage(comm, len(self.half), dtype=self.half.dtype, device=task.device)

    def exchange_parameters(self, step: int) -> None:
        """Average what comes first."""
        if ends_round(step, self.sync_every, self.task.steps):
            self.ring.run(self.half)


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
