"""What the layers of the engine's model are made of: its sizes, RMSNorm, rotary positions.

Shapes: N tokens of a step, H heads, d width of a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

EPSILON = 1e-5
ROTARY_BASE = 10000.0
# Three matrices of 8/3 have the parameters of two of 4: SwiGLU at equal size (Shazeer, 2020).
EXPANSION = 8 / 3
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of a model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocab: int
    max_context: int
    seed: int
    dtype: str = "float32"

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Shape:
        """Read sizes, refusing those that do not divide.

        Raises:
            ValueError: Heads do not divide.
        """
        shape = cls(**given)
        if shape.hidden % shape.heads or shape.heads % shape.kv_heads or (shape.hidden // shape.heads) % 2:
            raise ValueError(f"{shape.heads} and {shape.kv_heads} heads do not divide {shape.hidden}")
        return shape

    @property
    def head_dim(self) -> int:
        """Return the width of a head."""
        return self.hidden // self.heads

    @property
    def inner(self) -> int:
        """Return the width between the feed-forward layer's matrices."""
        return -(-round(EXPANSION * self.hidden) // 16) * 16


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Return x over its root mean square, in float32 at least (Zhang and Sennrich, 2019, equation 4).

    Args:
        x: (…, h); the result has its shape and dtype.
        weight: Gains, (h).
    """
    # A mean of squares in bfloat16 would have two or three digits.
    wide = x.float() if x.dtype == torch.bfloat16 else x
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)).to(x.dtype) * weight


class Turns:
    """Cosines and sines of positions, for ``rotated``.

    Args:
        shape: Of the model.
        device: Where they are.
    """

    def __init__(self, shape: Shape, device: torch.device) -> None:
        # In float64 and rounded at the end: an angle of thousands of radians loses them in float32.
        rates = ROTARY_BASE ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
        angles = torch.arange(shape.max_context, dtype=torch.float64)[:, None] * rates
        self._cos = angles.cos().to(device, DTYPES[shape.dtype])
        self._sin = angles.sin().to(device, DTYPES[shape.dtype])

    def __call__(self, positions_N: Tensor) -> tuple[Tensor, Tensor]:
        """Return both, each (N, 1, d / 2)."""
        return self._cos[positions_N, None], self._sin[positions_N, None]


def rotated(x_NHd: Tensor, cos_N1: Tensor, sin_N1: Tensor) -> Tensor:
    """Turn pairs (i, i + d/2) by their positions' angles (Su et al., RoFormer, equation 34, halves as pairs).

    Args:
        x_NHd: Queries or keys, of any number of heads.
        cos_N1: Cosines that ``Turns`` gave for the N positions, (N, 1, d / 2).
        sin_N1: Sines likewise.
    """
    first, second = x_NHd.chunk(2, -1)
    return torch.cat([first * cos_N1 - second * sin_N1, second * cos_N1 + first * sin_N1], -1)
