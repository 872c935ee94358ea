"""Keys and values of every position, in float16: what a decoder keeps today.

Algorithm: project the normalised stream to keys and values, round both to float16, keep them.
Cost: 2·L·F numbers of 2 bytes a position; nothing is made again.
Limits: it is what every smaller cache is held against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from paceline import technique
from paceline.families.serving.api.caching import CachedModel, Kept


@technique(
    name="full-cache",
    family="serving",
    implements=("cache",),
    summary="keys and values in float16",
)
class FullCache:
    """Keeps everything."""

    def keep(
        self, model: CachedModel, layer: int, x_B1D: Tensor, kept: Sequence[Mapping[str, Tensor]]
    ) -> Kept:
        """Return keys and values."""
        # Keys before their rotation, by the contract: whoever attends turns them by their positions.
        keys, values = model.layers[layer].keys_values(x_B1D)
        return {"keys": keys.half(), "values": values.half()}

    def keys_values(
        self, model: CachedModel, layer: int, kept: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return what was kept."""
        return kept[layer]["keys"].float(), kept[layer]["values"].float()
