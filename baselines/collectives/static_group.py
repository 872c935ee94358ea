"""A fixed process group, as torch.distributed offers it: the negative control of elastic all-reduce.

Algorithm: join one Gloo process group at the start and call its all-reduce. When a peer dies, the backend raises on the
others (or waits for its timeout); there is no way to go on without making a new group in new or re-initialised
processes, and nobody can join later.

Cost of an operation on S bytes: the backend's own, about 2(n−1)/n · S per peer.
Limits: any change of membership ends it. That is what the scenario is to show.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Problem
from paceline.families.collectives.api.wire import Address, Wire


@technique(
    name="static-group",
    family="collectives",
    implements=("churn",),
    summary="all-reduce in a process group whose members are fixed",
)
class StaticGroup:
    """One peer of a fixed group."""

    def __init__(
        self,
        problem: Problem,
        wire: Wire,
        master: Address | None,
        peer: int,
        fixed_group: Callable[[], Comm],
    ) -> None:
        self.problem = problem
        self.peer = peer
        self.fixed_group = fixed_group

    def join(self) -> None:
        """Join the process group of the first peers; a later peer finds no way in."""
        # The group's size is fixed when it is made, so there is no place for a later peer.
        if self.peer >= self.problem.world_size:
            raise RuntimeError("a fixed process group does not admit another peer")
        self.comm = self.fixed_group()

    def synchronise(self, state: Tensor, step: int) -> int:
        """Do nothing: members of a fixed group begin with equal states and stay equal."""
        return step

    def all_reduce(self, tensor: Tensor) -> tuple[int, ...]:
        """Call the backend's all-reduce."""
        # Nothing is caught: the scenario records how the backend fails when a peer is gone.
        self.comm.backend.all_reduce(tensor)
        return tuple(range(self.problem.world_size))


def cost(problem: Problem) -> None:
    """Return nothing: the backend moves the bytes."""
    return
