"""Keys and values of every position as numbers of a few bits, each token with scales of its own.

The plain form of quantised caches (Liu et al., "KIVI", arXiv:2402.02750, per-token quantisation; Hooper et
al., "KVQuant", arXiv:2401.18079), as a baseline: no grouping over positions, no outliers kept apart.

Algorithm: keys (before rotation) and values of a position are cut into groups of numbers; each is kept as codes of b
bits between its least and its largest number, with a step and an offset in float16.
Cost: 2·L·F·(b + 32/group) bits a position.
Differences: KIVI quantises keys by channel over many positions, which are kept in full until there are enough.
Limits: a channel of keys that is always large takes the range of its whole group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from paceline import technique
from paceline.families.serving.api.caching import CachedModel, Kept
from paceline.families.serving.api.quantised import quantised, restored


@technique(
    name="kv-quant",
    family="serving",
    implements=("cache",),
    summary="keys and values of a few bits, scales for each token",
)
class QuantisedKeysValues:
    """Quantises both.

    Args:
        group: Numbers that share a scale; all of a token's where it is 0.
    """

    def __init__(self, *, group: int = 0) -> None:
        self.group = group

    def keep(
        self, model: CachedModel, layer: int, x_B1D: Tensor, kept: Sequence[Mapping[str, Tensor]]
    ) -> Kept:
        """Return codes and scales of keys and values."""
        # Keys before rotation, as KVQuant keeps them: rotation mixes a large channel with its partner, by another
        # angle at every position.
        keys, values = model.layers[layer].keys_values(x_B1D)
        group = self.group or keys.shape[-1]
        found: Kept = {}
        found["keys"], found["key scales"] = quantised(keys, model.bits, group)
        found["values"], found["value scales"] = quantised(values, model.bits, group)
        return found

    def keys_values(
        self, model: CachedModel, layer: int, kept: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return the numbers behind the codes."""
        own = kept[layer]
        return (
            restored(own["keys"], own["key scales"], model.bits),
            restored(own["values"], own["value scales"], model.bits),
        )
