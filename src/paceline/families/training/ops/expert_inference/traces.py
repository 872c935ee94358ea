"""Routes of tokens through a model's experts, drawn from a chain: what a trained gate would do, of known affinity.

Shape suffixes: L layers, E experts, N tokens.

``markov``: from one layer's expert to the next one's a token follows one of three random permutations with 1/2, 1/3 and
1/6 of the probability ``affinity``, and else goes anywhere. Every expert has equal load. ``iid``: every layer anew.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from paceline.families.training.api.router import Router

PREFERENCES = (1 / 2, 1 / 3, 1 / 6)
PROFILE_TOKENS = 20_000


def steps_between(kind: str, layers: int, experts: int, affinity: float, seed: int) -> np.ndarray:
    """Return the probabilities of the next layer's expert given this one's, (L − 1, E, E)."""
    random = np.random.Generator(np.random.Philox(key=[seed, 0]))
    found = np.full((layers - 1, experts, experts), 1 / experts)
    if kind == "markov":
        found *= 1 - affinity
        for step_EE in found:
            for share in PREFERENCES:
                step_EE[np.arange(experts), random.permutation(experts)] += affinity * share
    return found


def draw(steps_LEE: np.ndarray, count: int, seed: int, stream: int) -> Tensor:
    """Return the routes of some tokens, (N, L)."""
    random = np.random.Generator(np.random.Philox(key=[seed, stream]))
    layers, experts = len(steps_LEE) + 1, steps_LEE.shape[-1]
    routes_NL = np.empty((count, layers), dtype=np.int64)
    routes_NL[:, 0] = random.integers(0, experts, count)
    for layer, step_EE in enumerate(steps_LEE):
        below = step_EE.cumsum(axis=1)[routes_NL[:, layer]] < random.random((count, 1))
        routes_NL[:, layer + 1] = np.minimum(below.sum(axis=1), experts - 1)
    return torch.from_numpy(routes_NL)


def make_router(
    kind: str,
    *,
    layers: int,
    experts: int,
    affinity: float,
    passes: int,
    sequences: int,
    context: int,
    seed: int,
) -> Router:
    """Draw the routes of a run, and those that techniques may learn from."""
    steps_LEE = steps_between(kind, layers, experts, affinity, seed)
    routes_NL = draw(steps_LEE, passes * sequences * context, seed, 1)
    return Router(
        experts_PBTL=routes_NL.view(passes, sequences, context, layers),
        profile_NL=draw(steps_LEE, PROFILE_TOKENS, seed, 2),
    )
