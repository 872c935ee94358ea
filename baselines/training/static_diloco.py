"""DiLoCo in a process group whose members are fixed: the negative control of ``elastic-diloco``.

Algorithm: Douillard et al., "DiLoCo" (2023), algorithm 1, with the backend's own all-reduce. When a peer dies, the
backend raises on the others at the round's end, and there is no way to go on without new processes; nobody can join.

Cost of a round: the backend's own, about 2·(n − 1)/n · 4P bytes from each peer. Memory: φ, m and Δ, 12P.
Limits: any change of membership ends it. That is what the scenario is to show.
"""

from __future__ import annotations

import torch
from paceline.baselines.collectives.static_group import StaticGroup

from paceline import technique
from paceline.families.training.api.place import Place
from paceline.families.training.api.rounds import nesterov_


@technique(
    name="static-diloco",
    family="training",
    implements=("churn",),
    summary="DiLoCo in a process group whose members are fixed",
    paper="diloco",
    requires={"min_ranks": 3, "devices": ("cpu",)},
    fidelity={
        "source": {
            "read": "reimplementation",
            "paper": "algorithm 1 by the header, not read for this card",
            "code": "none by the authors; github.com/PrimeIntellect-ai/OpenDiloco: open_diloco/train_fsdp.py",
        },
        "deviations": (
            (
                "The mean is the backend's own all-reduce, so that a peer's death ends the group: that is what it "
                "is for."
            ),
        ),
        "constants": {
            "sync_every": {"here": 20, "authors": "500, the default of OpenDiLoCo"},
            "outer_rate": {"here": 0.7, "authors": "0.7, OpenDiLoCo too"},
            "outer_momentum": {"here": 0.9, "authors": "0.9 with Nesterov's step, OpenDiLoCo too"},
        },
        "checked_by": (
            "tests/distributed/test_killed_peers.py::test_while_nobody_dies_an_elastic_group_trains_as_a_fixed_one",
            "tests/distributed/test_killed_peers.py::test_a_fixed_group_ends_in_a_reason",
        ),
    },
)
class StaticDiLoCo:
    """One peer's rounds in a fixed group."""

    def __init__(
        self, place: Place, *, sync_every: int = 20, outer_rate: float = 0.7, outer_momentum: float = 0.9
    ) -> None:
        self.outer_rate, self.outer_momentum = outer_rate, outer_momentum
        self.weights = place.weights
        self.group = StaticGroup(place.problem, place.wire, place.master, place.peer, place.fixed_group)
        self.slow = place.weights.clone()
        self.momentum = torch.zeros_like(self.slow)

    def join(self) -> None:
        """Join the process group of the first peers; a later peer finds no way in."""
        self.group.join()

    def begin_round(self, step: int) -> int:
        """Begin at the global weights, which members of a fixed group have in common."""
        self.weights.copy_(self.slow)
        return step

    def exchange(self) -> tuple[int, ...]:
        """Average the displacements of all members, and take the outer step."""
        # A vector of its own: here no gradients' vector is free, since the family and not the technique trains.
        outer = self.slow - self.weights
        members: tuple[int, ...] = self.group.all_reduce(outer)
        outer.div_(len(members))
        nesterov_(self.slow, self.momentum, outer, rate=self.outer_rate, momentum_share=self.outer_momentum)
        self.weights.copy_(self.slow)
        return members


def cost() -> None:
    """Return nothing: the backend moves the bytes."""
    return
