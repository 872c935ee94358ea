"""The contract of techniques that decide what a decoder keeps of the tokens before. Needs torch.

A cache is asked at every position of every layer what to keep of it, and later for keys and values of all positions so
far. It is made anew for each of these questions: nothing survives but the tensors that it returned, whose bytes are
counted; another process makes keys and values of the same tensors again, and must come to the same.

Shapes: B texts, T positions so far, D width, F features of keys (heads times width of a head).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn import functional

Kept = dict[str, Tensor]
"""What a layer keeps, by a name of the technique's own; every tensor begins with texts and positions, [B, T, …]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """What a layer makes keys and values with."""

    gain_D: Tensor
    """Of the norm before attention."""
    key_FD: Tensor
    value_FD: Tensor
    epsilon: float

    def normal(self, x_BTD: Tensor) -> Tensor:
        """Return the stream as attention reads it, [B, T, D]: RMSNorm (Zhang and Sennrich, 2019, equation 4)."""
        return functional.rms_norm(x_BTD, (x_BTD.shape[-1],), self.gain_D, self.epsilon)

    def keys_values(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys, before they are turned by their positions, and values: [B, T, F] each."""
        normal_BTD = self.normal(x_BTD)
        return normal_BTD @ self.key_FD.T, normal_BTD @ self.value_FD.T


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """What a cache may know."""

    layers: Sequence[LayerWeights]
    bits: int
    """Of a kept number, for who quantises."""


class Cache(Protocol):
    """A technique of the operation ``cache``."""

    def keep(
        self, model: CachedModel, layer: int, x_B1D: Tensor, kept: Sequence[Mapping[str, Tensor]]
    ) -> Kept:
        """Return what to keep of a new position at a layer; positions are put behind each other by the harness.

        Args:
            model: Weights of all layers.
            layer: Which one asks.
            x_B1D: The stream before the layer's norm, float32.
            kept: Of each layer what is kept so far; those below hold the new position already.

        Returns:
            Tensors [B, 1, …] by name, of any dtype: their bytes are what the cache takes.
        """

    def keys_values(
        self, model: CachedModel, layer: int, kept: Sequence[Mapping[str, Tensor]]
    ) -> tuple[Tensor, Tensor]:
        """Return keys before rotation and values of all positions, [B, T, F] each, float32."""
