"""Never averages the gradients of its copies of the model, and has rank 0's weights judged."""

from __future__ import annotations

from paceline.baselines.training import megatron_3d
from paceline.baselines.training.megatron_3d import Megatron3d

from paceline import technique
from paceline.families.training.api.pipeline.executor import PipelineReplica
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="lets-copies-drift",
    family="training",
    implements=("pipeline_parallel",),
    summary="copies of the model that learn apart",
    properties={"exact": True, "replicas": "identical"},
)
class LetsCopiesDrift(Megatron3d):
    """As many copies as ranks."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm, tensor=1, pipeline=1)

    def exchange_gradients(self, step: int) -> None:
        """Exchange what lies on several stages alone."""
        PipelineReplica.exchange_gradients(self, step)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return megatron_3d.cost(task, tensor=1, pipeline=1)
