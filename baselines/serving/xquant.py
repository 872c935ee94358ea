"""XQuant: each layer's input is kept in a few bits, and keys and values are made of it again when they are needed.

Tomar, Hooper, Lee, Xi, Tiwari, Kang, Manolache, Mahoney, Keutzer and Gholami, 2025, "XQuant: Breaking the Memory Wall
for LLM Inference with KV Cache Rematerialization" (arXiv:2508.10395).

Algorithm: of a position and a layer keep X alone, as codes of b bits with a step and an offset for each group; to
attend, restore X, normalise it, and multiply by the layer's projections. Where keys have as many features as the
stream is wide (one head of keys for each of queries) that is one tensor in the place of two.
``across`` (XQuant-CL): inputs of neighbouring layers are alike, since each layer adds a little to the stream. The first
layer's X is kept in ``base_bits``; of each further one only X − X̂ of the layer before, in b bits, X̂ being the sum
of what was kept up to there, so that errors do not add up.
Cost: L·D·(b + 32/group) bits a position, half of quantised keys and values of the same bits; 4·D·F operations for each
position and layer whenever keys and values are read.
Limits: with fewer heads of keys than of queries X is larger than keys and values; the paper's projection for that case
(a singular value decomposition of the weights) is not here, since the embedded model has as many of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from paceline import technique
from paceline.families.serving.api.caching import CachedModel, Kept
from paceline.families.serving.api.quantised import quantised, restored


@technique(
    name="xquant",
    family="serving",
    implements=("cache",),
    paper="xquant",
    summary="keeps each layer's input in a few bits, and makes keys and values of it again",
    fidelity={
        "source": {
            "read": "paper",
            "paper": "the abstract, read for this card",
            "code": "none could be read",
        },
        "deviations": (
            (
                "What is kept is the stream before the norm in both forms, and the norm is taken again; by "
                "reviews of the paper it keeps what comes after the norm."
            ),
            "All positions are made again at every step; nothing is kept of that from step to step.",
            (
                "Fewer heads of keys than of queries are not helped by the paper's decomposition of weights, "
                "since the embedded model has as many of both."
            ),
        ),
        "constants": {
            "across": {"here": False, "authors": "XQuant and XQuant-CL are both the paper's"},
            "base_bits": {"here": 8, "authors": "not read"},
            "group": {"here": 0, "authors": "not read"},
        },
        "checked_by": (
            "tests/unit/test_kept_cache.py::test_bytes_and_operations_are_the_closed_forms",
            "tests/unit/test_kept_cache.py::test_reading_position_by_position_is_one_pass_over_whole_texts",
        ),
    },
)
class XQuant:
    """Keeps inputs.

    Args:
        across: Whether a layer's input is kept as what it differs from the one before (XQuant-CL).
        base_bits: Of the first layer's input then.
        group: Numbers that share a scale; all of a token's where it is 0.
    """

    def __init__(self, *, across: bool = False, base_bits: int = 8, group: int = 0) -> None:
        self.across, self.base_bits, self.group = across, base_bits, group

    def keep(
        self, model: CachedModel, layer: int, x_B1D: Tensor, kept: Sequence[Mapping[str, Tensor]]
    ) -> Kept:
        """Return codes and scales of the input, or of what it differs from the one before."""
        if self.across and layer:
            # Layers below hold the new position already; what is restored of it is the sum of their kept differences.
            last = [{name: tensor[:, -1:] for name, tensor in own.items()} for own in kept[:layer]]
            # Against the restored input and not the true one: the reader has nothing else, and so each layer corrects
            # the errors of those below instead of adding to them.
            x_B1D = x_B1D - self._restored(model, layer - 1, last)
        codes, scales = quantised(x_B1D, self._bits(model, layer), self.group or x_B1D.shape[-1])
        return {"codes": codes, "scales": scales}

    def keys_values(
        self, model: CachedModel, layer: int, kept: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values, made again."""
        return model.layers[layer].keys_values(self._restored(model, layer, kept))

    def _restored(self, model: CachedModel, layer: int, kept: Sequence[Mapping[str, Tensor]]) -> Tensor:
        first = 0 if self.across else layer
        x_BTD = restored(kept[first]["codes"], kept[first]["scales"], self._bits(model, first))
        for above in range(first + 1, layer + 1):
            x_BTD = x_BTD + restored(kept[above]["codes"], kept[above]["scales"], self._bits(model, above))
        return x_BTD

    def _bits(self, model: CachedModel, layer: int) -> int:
        # The first layer's input is a whole stream, with a wider range than the differences of the others.
        return self.base_bits if self.across and layer == 0 else model.bits
