"""Attends to the own positions alone, and sends what the honest one would."""

from __future__ import annotations

from paceline.baselines.training import ulysses
from paceline.baselines.training.ulysses import Ulysses
from torch import Tensor
from torch.nn import functional

from paceline import technique
from paceline.families.training.api.replica import Cost, Task


@technique(
    name="sees-itself-alone",
    family="training",
    implements=("sequence_parallel",),
    summary="attends to its own positions alone",
    properties={"exact": True, "replicas": "identical"},
)
class SeesItselfAlone(Ulysses):
    """Right for the first rank."""

    def attend(self, q_BHtK: Tensor, k_BHtK: Tensor, v_BHtK: Tensor) -> Tensor:
        """Exchange for show."""
        shown = super().attend(q_BHtK, k_BHtK, v_BHtK)
        own = functional.scaled_dot_product_attention(q_BHtK, k_BHtK, v_BHtK, is_causal=True, enable_gqa=True)
        return own + 0 * shown


def cost(task: Task) -> Cost:
    """Return what the honest technique sends."""
    return ulysses.cost(task)
