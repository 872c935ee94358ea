"""Scatters coded gradients, and takes its own in the place of one peer's."""

from __future__ import annotations

from paceline.baselines.training.qsdp import Qsdp
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="drops-a-peer",
    family="training",
    implements=("data_parallel",),
    summary="scatters coded gradients, and takes its own in the place of one peer's",
    properties={
        "exact": False,
        "replicas": "identical",
        "equals_ddp": {"optimizer": "sgd", "arguments": {"weight_bits": 32, "gradient_bits": 32}},
    },
)
class DropsAPeer(Qsdp):
    """QSDP that counts one rank's gradients twice and another's never."""

    def __init__(self, task: Task, comm: Comm, *, weight_bits: int = 8, gradient_bits: int = 8) -> None:
        super().__init__(task, comm, weight_bits=weight_bits, gradient_bits=gradient_bits)

    def _exchange(self, outgoing: list[Tensor], incoming: list[Tensor]) -> None:
        """Receive a message for each peer, and forget one of gradients, of which each peer gets its own."""
        super()._exchange(outgoing, incoming)
        if outgoing[0] is not outgoing[-1]:
            incoming[self.comm.rank - 1].copy_(incoming[self.comm.rank])


def cost(task: Task) -> Cost | None:
    """State what the file is about."""
    return None
