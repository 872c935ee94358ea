"""Random numbers that a user's code draws from the process's own generators: from a seed, and nobody else's change."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import torch


class Generators:
    """The process's own generators of random numbers, as one stream of batches draws from them: its own each time.

    Args:
        seed: What they begin from.
    """

    def __init__(self, seed: int) -> None:
        self._kept: Any = None
        with self:
            torch.manual_seed(seed % (1 << 63))
            random.seed(seed)
            np.random.seed(seed % (1 << 32))

    def __enter__(self) -> None:
        self._others = _states()
        if self._kept is not None:
            _restore(self._kept)

    def __exit__(self, *error: object) -> None:
        self._kept = _states()
        _restore(self._others)


def _states() -> Any:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _restore(states: Any) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


def mixed(*numbers: int) -> int:
    """Return a seed of several numbers, none of which is another's neighbour."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:7], "little")
