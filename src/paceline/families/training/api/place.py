"""The contract of techniques for ``churn``: what happens between local steps in a group whose peers come and go.

The family trains. Each peer takes local steps of the point's inner optimiser on sequences of its own; a technique says
who is in the group, makes all weights equal before a round, and takes the outer step at its end. Its options are those
of DiLoCo, and the harness holds every exchange to them: with φ the weights at the begin of a round, θ those of a member
at its end, and m zero before the first one::

    Δ = mean over members of φ − θ;  m ← μ·m + Δ;  φ ← φ − η·(Δ + μ·m)

``sync_every`` steps make a round, ``outer_rate`` is η (1 with μ = 0: a plain average), ``outer_momentum`` is μ.

Its module may define ``master(wire, num_peers)``, which then runs in a process of its own until it is killed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from paceline.families.collectives.api.problem import Comm, Problem
from paceline.families.collectives.api.wire import Address, PeerLostError, Wire

__all__ = ["Address", "Comm", "Member", "PeerLostError", "Place", "Problem", "Wire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a technique is made with, beside its options: one peer's place in the group."""

    weights: Tensor
    """The model's, (P,), float32, on the host; writing to them changes the model. At first equal on all peers."""
    peer: int
    """This peer's number; one that is not among the first peers comes later."""
    wire: Wire
    master: Address | None
    """None where the module has no master."""
    problem: Problem
    """An all-reduce over P elements, for techniques that build on one of the collectives family's ``churn``."""
    fixed_group: Callable[[], Comm]
    """Joins a process group of the first peers, whose members are fixed."""


class Member(Protocol):
    """A technique on one peer."""

    def join(self) -> None:
        """Enter the group; return when this peer may take part in the next round."""
        ...

    def begin_round(self, step: int) -> int:
        """Meet the others before a round and give all the same weights; a newcomer's are replaced.

        Args:
            step: Steps that this peer has done; 0 for one that has just come.

        Returns:
            Steps that the group has done.
        """
        ...

    def exchange(self) -> tuple[int, ...]:
        """Take the outer step with those who are alive; return the numbers of the peers whose weights are in it."""
        ...
