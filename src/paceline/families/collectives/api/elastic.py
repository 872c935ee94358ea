"""The contract of elastic techniques: they sum over a group that changes while they run."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Elastic(Protocol):
    """The contract of techniques for ``churn``.

    A technique is made with a problem, a wire, the master's address (None when it needs no master), the peer's own
    number, and a function that joins a fixed process group of the first peers. Its module may define
    ``master(wire, num_peers)``, which then runs in a process of its own until it is killed.
    """

    def join(self) -> None:
        """Enter the group; return when this peer may take part in the next operation."""
        ...

    def synchronise(self, state: Tensor, step: int) -> int:
        """Make the state bit-identical on all members (a newcomer's is replaced); return the group's step.

        ``state`` is a contiguous tensor on the CPU, of the same shape and dtype on all peers.
        """
        ...

    def all_reduce(self, tensor: Tensor) -> tuple[int, ...]:
        """Sum over the current members in place; return the numbers of the peers whose data is in the sum.

        ``tensor`` is (n,), contiguous, on the CPU, of the same length and dtype on all peers.
        """
        ...
