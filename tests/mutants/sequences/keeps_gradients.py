"""Forgets what other ranks add to the gradients of its queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paceline.baselines.training import token_ring
from paceline.baselines.training.token_ring import TokenRing
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="keeps-gradients",
    family="training",
    implements=("sequence_parallel",),
    summary="takes no gradients of queries from other ranks",
    properties={"exact": True, "replicas": "identical"},
)
class KeepsGradients(TokenRing):
    """Its forward is right."""

    def circulate(
        self, own_tMX: Tensor, answer: Callable[[int, Tensor], Tensor], width: int
    ) -> Iterator[Tensor]:
        """Take what comes back in backward for nothing."""
        for number, part_tMX in enumerate(super().circulate(own_tMX, answer, width)):
            backward = width < own_tMX.shape[-1]
            yield part_tMX * 0 if backward and number else part_tMX


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return token_ring.cost(task, direct_last=False)
