"""The contract of techniques that estimate whose data helped whom among peers that learn by gossip. Free of torch.

Peers hold weights θ. In every step each peer adds its displacement, −η times the gradient on its own minibatch, and
then takes the mixed weights of its neighbours: θ ← W·(θ + Δ). The influence of a peer's displacement in step t, over r
hops, is what the loss on held-out samples would have gained without it: its own at once, and that of all peers after 1,
…, r steps, each with the peer's share. Negative: it helped.

A technique's ``run`` is a generator: it yields what it wants, and is resumed with the answer.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paceline.base.techniques.technique import UnsupportedError

__all__ = [
    "Array",
    "Displacement",
    "Estimate",
    "Estimator",
    "Given",
    "HessianProduct",
    "Request",
    "Run",
    "TestGradient",
    "UnsupportedError",
]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What an estimator is told before it starts."""

    peers: int
    hops: int
    """r."""
    steps: tuple[int, ...]
    """Those whose displacements' influence is asked for."""
    rate: float
    """η."""
    mixing: Array
    """W, [peers, peers]: row k mixes what peer k takes."""
    shares: Array
    """Of each peer's loss in the influence, [peers]; they sum to one."""
    seed: int


@dataclass(frozen=True, slots=True)
class Displacement:
    """Ask for Δ of a peer in a step, [dim]."""

    peer: int
    step: int


@dataclass(frozen=True, slots=True)
class TestGradient:
    """Ask for the gradient of the loss on held-out samples at a peer's weights before a step, [dim]."""

    __test__ = False
    peer: int
    step: int


@dataclass(frozen=True, slots=True)
class HessianProduct:
    """Ask for the Hessian of the loss on a peer's minibatch of a step, at its weights before it, times a vector."""

    peer: int
    step: int
    vector: Array


@dataclass(frozen=True, slots=True)
class Estimate:
    """State the influence of every peer's displacement in a step, [peers]. Answered by None."""

    step: int
    influence: Array


Request = Displacement | TestGradient | HessianProduct | Estimate
Run = Generator[Request, Any, Any]


class Estimator(Protocol):
    """A technique of ``influence``."""

    def run(self, given: Given) -> Run:
        """Estimate the influence of every peer in all steps that are asked for."""
