"""Random directions that every rank can draw for every other: the shared randomness of probing techniques."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

PLACES = 1 << 12
"""Most ranks, and most probes of a rank in one step."""


def direction(seed: int, step: int, rank: int, probe: int, count: int) -> Tensor:
    """Return the standard normal direction of one probe, (count,) in float32.

    Philox is a counter's bijection: distinct (step, rank, probe) are distinct keys, and need no state to be kept.
    """
    assert rank < PLACES
    assert probe < PLACES
    # On the host: devices' generators differ, and all ranks must draw a direction with equal bits.
    bits = np.random.Philox(key=[seed, (step * PLACES + rank) * PLACES + probe])
    return torch.from_numpy(np.random.Generator(bits).standard_normal(count, dtype=np.float32))
