"""What peers tell of their weights: a digest, and a sketch in which exchanges can be judged."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SKETCH_PLACES = 64


def digest_of(vector: NDArray[np.float32]) -> str:
    """Return the SHA-256 of a vector's bytes."""
    return hashlib.sha256(vector.tobytes()).hexdigest()


class Sketch:
    """Sums of a vector's elements at random places, with random signs: linear, and different for different vectors."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._places = torch.randint(SKETCH_PLACES, (count,), generator=generator)
        self._signs = torch.randint(2, (count,), generator=generator).double().mul_(2).sub_(1)

    def of(self, vector: Tensor) -> list[float]:
        """Return the sums, in float64."""
        sums = torch.zeros(SKETCH_PLACES, dtype=torch.float64)
        found: list[float] = sums.index_add_(0, self._places, self._signs * vector.double()).tolist()
        return found
