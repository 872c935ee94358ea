"""False gradients of Byzantine nodes. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paceline.families.training.api.objective import Array

RANDOM, REVERSED = "random", "reversed"
ATTACKS = (RANDOM, REVERSED)
DEVIATION = 200.0
"""Of random numbers (Blanchard et al., "Machine Learning with Adversaries", NeurIPS 2017: its Gaussian workers)."""
TENFOLD = 10.0
"""How far a reversed gradient goes (the code of FlagAggregator, garfieldpp/byzWorker.py)."""


def byzantine(params: Mapping[str, Any], seed: int) -> frozenset[int]:
    """Return the places of the nodes with data whose gradients are false, from 0."""
    drawn = np.random.default_rng([seed, 78]).permutation(int(params["nodes"]))
    return frozenset(int(place) for place in drawn[: int(params["byzantine"])])


def false(attack: str, gradient: Array, rng: np.random.Generator) -> Array:
    """Return what a Byzantine node has in the place of a gradient, [dim]."""
    return DEVIATION * rng.standard_normal(len(gradient)) if attack == RANDOM else -TENFOLD * gradient
