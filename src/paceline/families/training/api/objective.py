"""The contract of techniques that optimise a known objective over nodes in virtual time. Free of torch.

A technique's class is made once for every node, and its ``run`` is a generator: it yields what the node wants, and is
resumed with the answer. Node 0 of a star is the server, which has no data; clients are 1 to n. In other graphs all
nodes, 0 to n - 1, have data. What a node knows comes from ``Given``, from its own data and from messages, and from
nothing else: each node is run again, alone and in a fresh process, on the answers that it got, and has to want the
same.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paceline.base.techniques.technique import UnsupportedError

__all__ = [
    "SERVER",
    "Array",
    "Given",
    "Gradient",
    "LossAndGradient",
    "Message",
    "Now",
    "Optimiser",
    "Parts",
    "PrivateGradient",
    "Receive",
    "Report",
    "Request",
    "Run",
    "Send",
    "Sizes",
    "Sleep",
    "UnsupportedError",
    "Value",
    "bits_of",
]

Array = npt.NDArray[np.float64]
Parts = tuple[npt.NDArray[Any], ...]
SERVER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a node is told before it starts."""

    me: int
    num_nodes: int
    """All nodes, a server included."""
    dim: int
    """Numbers of the model."""
    start: Array
    """Where all begin, [dim]."""
    smoothness: float
    """L: the gradient's Lipschitz constant, an upper bound over nodes."""
    convexity: float
    """The modulus of strong convexity (of an operator: monotonicity) of the mean; 0 where there is none."""
    weights: Mapping[int, float]
    """Share of each node with data in the objective; they sum to one."""
    samples: int
    """Samples of each node with data."""
    neighbours: tuple[int, ...]
    """Nodes that this one may send to."""
    mixing: Mapping[int, float]
    """Of graphs without a server: this row of the doubly stochastic matrix (Metropolis), itself included."""
    shared_seed: int
    """The same on all nodes: coins that all toss alike need no message."""
    own_seed: int
    horizon_s: float
    """Virtual time at which the run ends."""
    epsilon: float = 0.0
    """Privacy that every node's data must be left with; 0: nothing is asked."""
    delta: float = 0.0
    facts: Mapping[str, float] = field(default_factory=dict)
    """Further constants of the problem that a practitioner would know; ``byzantine``, how many nodes' gradients may be
    false, where some are; of a graph without a server ``edges`` and of its Laplacian ``laplacian_gap`` (least positive
    eigenvalue), ``laplacian_top`` and ``edge_resistance`` (the largest)."""


@dataclass(frozen=True, slots=True)
class Gradient:
    """Ask for the gradient (of a game: the operator) of the own objective; answered by an array, [dim].

    ``minibatch`` samples are drawn anew; 0 takes all of them.
    """

    at: Array
    minibatch: int = 0


@dataclass(frozen=True, slots=True)
class LossAndGradient:
    """Ask for loss and gradient over the same samples; answered by ``(float, array)``, in a gradient's time."""

    at: Array
    minibatch: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """Ask for the own objective at a point: one query; answered by a float."""

    at: Array


@dataclass(frozen=True, slots=True)
class PrivateGradient:
    """Ask for a mean of clipped gradients with Gaussian noise; answered by an array, [dim].

    Every sample's gradient at ``at``, less that at ``before`` where it is given, is scaled to a norm of ``clip`` at
    most. Noise of deviation ``noise`` · ``clip`` / samples is added to each number of their mean. Whoever judges counts
    it as one release.
    """

    at: Array
    clip: float
    noise: float
    before: Array | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send arrays to a node; they are copied, their bytes are counted, and nothing is waited for."""

    to: int
    parts: Parts


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for the next message; answered by a ``Message``, or None at ``until_s`` of the virtual clock."""

    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class Sleep:
    """Do nothing until an instant of the virtual clock; messages wait. Answered by None."""

    until_s: float


@dataclass(frozen=True, slots=True)
class Now:
    """Ask for the virtual time; answered by a float."""


@dataclass(frozen=True, slots=True)
class Report:
    """Show the model that the node would ship now, [dim]; answered by None."""

    model: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What came."""

    sender: int
    parts: Parts
    at_s: float
    """When it arrived."""


Request = Gradient | LossAndGradient | Value | PrivateGradient | Send | Receive | Sleep | Now | Report
Run = Generator[Request, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes that a technique's messages have, in bits, within 1 %; a message of another size is refused."""

    clients: tuple[int, ...]
    """Of messages from nodes with data."""
    server: tuple[int, ...] = ()
    at_least: bool = False
    """Sizes vary with what is learned: the largest is the most, and the least the least."""


class Optimiser(Protocol):
    """A technique of ``objective``: one object for each node, which shares nothing with the others."""

    def sizes(self, given: Given) -> Sizes:
        """Return the sizes of all messages."""

    def run(self, given: Given) -> Run:
        """Be one node."""


def bits_of(parts: Sequence[npt.NDArray[Any]]) -> int:
    """Return the bits of a message: those of its arrays as they lie in memory."""
    return sum(8 * part.nbytes for part in parts)
