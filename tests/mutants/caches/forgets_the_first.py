"""Makes keys and values of all positions but the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from paceline import technique
from paceline.families.serving.api.caching import CachedModel, Kept


@technique(
    name="forgets-the-first",
    family="serving",
    implements=("cache",),
    summary="leaves out the first position",
)
class ForgetsTheFirst:
    """Is smaller by a position."""

    def keep(
        self, model: CachedModel, layer: int, x_B1D: Tensor, kept: Sequence[Mapping[str, Tensor]]
    ) -> Kept:
        """Return keys and values."""
        keys, values = model.layers[layer].keys_values(x_B1D)
        return {"keys": keys, "values": values}

    def keys_values(
        self, model: CachedModel, layer: int, kept: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return too few."""
        return kept[layer]["keys"][:, 1:], kept[layer]["values"][:, 1:]
