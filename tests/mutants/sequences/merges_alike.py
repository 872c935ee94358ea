"""Merges what queries saw on different ranks as if each had seen as much."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paceline.baselines.training import token_ring
from paceline.baselines.training.token_ring import TokenRing
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="merges-alike",
    family="training",
    implements=("sequence_parallel",),
    summary="merges without the log-sum-exps",
    properties={"exact": True, "replicas": "identical"},
)
class MergesAlike(TokenRing):
    """Right where one rank has all keys."""

    def circulate(
        self, own_tMX: Tensor, answer: Callable[[int, Tensor], Tensor], width: int
    ) -> Iterator[Tensor]:
        """Forget the log-sum-exps, which answers of the forward have in their last column."""
        for part_tMX in super().circulate(own_tMX, answer, width):
            if width > own_tMX.shape[-1]:
                part_tMX[..., -1] = 0
            yield part_tMX


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return token_ring.cost(task, direct_last=False)
