"""Keeps a larger tensor behind a small one, and no plain one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from paceline import technique
from paceline.families.serving.api.caching import CachedModel, Kept


@technique(
    name="keeps-a-view",
    family="serving",
    implements=("cache",),
    summary="keeps a tensor that carries another one",
)
class KeepsAView:
    """Hands over a parameter whose attribute holds what is not counted."""

    def keep(
        self, model: CachedModel, layer: int, x_B1D: Tensor, kept: Sequence[Mapping[str, Tensor]]
    ) -> Kept:
        """Return a tensor of another kind."""
        return {"codes": nn.Parameter(x_B1D[..., :1], requires_grad=False)}

    def keys_values(
        self, model: CachedModel, layer: int, kept: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return nothing of use."""
        raise NotImplementedError
