"""The setting of ranks that share experts: layers whose gates send every token to some of many experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paceline.families.training.api.expert.layer import ExpertLayer, expert_layers
from paceline.families.training.api.model import Transformer
from paceline.families.training.api.sizes import Size
from paceline.families.training.core.data.setting import Setting

DECIDED = 1e-6
"""Least distance of two logits of a gate in a proof: below, rounding may send a token elsewhere than the reference."""
DRAWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSetting(Setting):
    """Adds experts."""

    splits_by_rows: ClassVar[bool] = False  # tokens of all rows share an expert's slots
    experts: int
    """Of a layer."""
    top_k: int
    """Experts of a token."""
    capacity: float
    """Slots of all experts together, over what all tokens would need."""

    def layer(self, size: Size) -> ExpertLayer:
        """Return a layer with experts."""
        return ExpertLayer(size, num_experts=self.experts, top_k=self.top_k, capacity_factor=self.capacity)

    def decided(self, model: Transformer) -> bool:
        """Tell whether no token's way hung on the rounding of its gate's logits."""
        return min(layer.closest for layer in expert_layers(model)) >= DECIDED
