"""Elastic DiLoCo: rounds of local steps, averaged by whoever is alive.

INTELLECT-1 Technical Report (Prime Intellect, 2024), whose ElasticDeviceMesh lets nodes join and leave between outer
steps and recover their state live from a peer; the membership protocol is PCCL's (Keiblinger et al., 2025), by the
collectives family's ``elastic-allreduce``.

Algorithm (φ: global weights, equal everywhere; θ: a peer's; M: the members):
1. Meet: peers compare hashes of (φ, m). Who differs, a newcomer, fetches both from a peer that has them. θ ← φ.
2. Every member takes H inner steps of AdamW on its own data; a newcomer's inner moments begin at zero.
3. Δ ← 1/|M| · Σ over M of φ − θ, by the elastic ring. If a member dies, the survivors form a new ring and start again
   from their untouched Δ: M is whoever is in the ring that succeeds.
4. m ← μ·m + Δ; φ ← φ − η·(Δ + μ·m).

Cost of a round: 2·(n − 1)/n · 4P bytes from each member and two messages to and from the master; a retry costs what had
been sent; a newcomer is sent 8P. Memory: φ and m, 8P, Δ and the ring's copy of it, 8P.
Limits: the local steps of a member that dies are lost; a newcomer waits for the round to end, and members for each
other 20 s at most; the master is a single point of failure.
"""

from __future__ import annotations

import torch
from paceline.baselines.collectives import elastic_allreduce

from paceline import technique
from paceline.families.training.api.place import Place, Wire
from paceline.families.training.api.rounds import nesterov_


@technique(
    name="elastic-diloco",
    family="training",
    implements=("churn",),
    summary="DiLoCo among whoever is alive, who comes fetches the global weights from a peer",
    paper="intellect-1",
    requires={"min_ranks": 3, "devices": ("cpu",)},
    fidelity={
        "source": {
            "read": "code",
            "paper": "the elastic mesh by the header, not read for this card",
            "code": (
                "github.com/PrimeIntellect-ai/prime: src/zeroband/diloco.py; github.com/PrimeIntellect-ai/pccl: "
                "README.md"
            ),
        },
        "deviations": (
            "Float32 travels instead of 8-bit codes, which ``intellect-1`` has.",
            "A replica is one process, and no node that shards it.",
            "A lost connection tells of a death, where the report's mesh waits for heartbeats to fail.",
        ),
        "constants": {
            "sync_every": {"here": 20, "authors": "100 by the ledger"},
            "outer_rate": {"here": 0.7, "authors": "a setting, its default was not read"},
            "outer_momentum": {"here": 0.9, "authors": "0.9 with Nesterov's step, diloco.py"},
        },
        "checked_by": (
            (
                "tests/distributed/test_killed_peers.py::test_survivors_of_an_elastic_group_go_on_and_a_newcomer_becomes_one_of_them"
            ),
            "tests/distributed/test_killed_peers.py::test_while_nobody_dies_an_elastic_group_trains_as_a_fixed_one",
        ),
    },
)
class ElasticDiLoCo:
    """One peer's rounds on an elastic ring."""

    def __init__(
        self, place: Place, *, sync_every: int = 20, outer_rate: float = 0.7, outer_momentum: float = 0.9
    ) -> None:
        self.outer_rate, self.outer_momentum = outer_rate, outer_momentum
        self.weights = place.weights
        assert place.master is not None
        self.group = elastic_allreduce.ElasticAllReduce(
            place.problem, place.wire, place.master, place.peer, place.fixed_group
        )
        # One vector for φ and m: one hash tells whether a peer differs, and one transfer brings it up to date.
        self.state = torch.cat([place.weights, torch.zeros_like(place.weights)])
        self.slow, self.momentum = self.state.chunk(2)

    def join(self) -> None:
        """Make this peer known to the master."""
        self.group.join()

    def begin_round(self, step: int) -> int:
        """Meet, level the global weights and their momentum, and begin at them."""
        step = self.group.synchronise(self.state, step)
        # After the meeting: a peer that fetched another φ must not start its round from its own.
        self.weights.copy_(self.slow)
        return step

    def exchange(self) -> tuple[int, ...]:
        """Average the displacements of those who are alive, and take the outer step."""
        outer = self.slow - self.weights
        members: tuple[int, ...] = self.group.all_reduce(outer)
        # A sum until here: who is in the mean is known only once a ring has succeeded.
        outer.div_(len(members))
        nesterov_(self.slow, self.momentum, outer, rate=self.outer_rate, momentum_share=self.outer_momentum)
        self.weights.copy_(self.slow)
        return members


def master(wire: Wire, num_peers: int) -> None:
    """Run the group until every peer has gone."""
    elastic_allreduce.master(wire, num_peers)


def cost() -> None:
    """Return nothing: the bytes depend on who dies when."""
    return
