"""Pairwise gossip: in each step every replica averages with one partner drawn at random.

Kolehmainen et al., "NoLoCo: No-all-reduce Low Communication Training Method for Large Models" (2025): the outer step's
exchange between randomly drawn pairs.

Algorithm (n ranks):
1. All ranks shuffle the list of ranks with a generator that they share, so nobody needs to agree on anything.
2. Neighbours in the shuffled list are partners; with an odd number of ranks the last one sits this step out.
3. Partners exchange their whole buffers, and both keep the average.

Cost: S bytes in one message for each rank, whatever n is; one dependent step. Memory: S for the partner's buffer.
The mixing matrix is symmetric and doubly stochastic; one step leaves (n/2 − 1)/(n − 1) of the spread of independent
replicas (n even), none for n = 2.

Limits: after one step replicas agree in pairs only.
"""

from __future__ import annotations

import random

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="gossip-pair",
    family="collectives",
    implements=("mix",),
    summary="average with one random partner",
    paper="noloco",
    requires={"dtypes": ("float32", "bfloat16", "float16", "float64")},
    properties={"exact": False},
    fidelity={
        "source": {
            "read": "code",
            "paper": "the outer step by the header, not read for this card",
            "code": "github.com/gensyn-ai/noloco: src/noloco/sparse_optimizer_c.py",
        },
        "deviations": (
            (
                "One buffer is exchanged; the authors exchange slow weights and displacement, and take their "
                "outer step with both."
            ),
            (
                "Partners swap buffers; the authors' first of a pair collects, averages and sends back, in twice "
                "the steps."
            ),
            "An odd number of ranks is allowed, and one sits out; the authors refuse it.",
        ),
        "constants": {},
        "checked_by": (
            "tests/conformance/test_conformance.py::test_a_technique_conforms",
            "tests/unit/test_outer_steps.py::test_partners_mix_momenta_moves_and_weights",
        ),
    },
)
class GossipPair:
    """Exchange and average with a partner from a shared random schedule."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        # The seed is equal on all ranks: they draw the same pairs without a message.
        self.schedule = random.Random(problem.seed)
        self.incoming = problem.empty(problem.count)

    def run(self, *buffers: Tensor) -> None:
        """Mix ``buffers[0]`` with this step's partner in place."""
        (buffer,) = buffers
        partner = self._draw_partner()
        if partner is None:
            return
        # Being partners is symmetric, so both ends call this; were the draws unequal, it would hang.
        self.comm.exchange(buffer, partner, self.incoming, partner)
        with self.comm.span("compute"):
            # Addition commutes: both partners end with the same bits.
            buffer.add_(self.incoming).mul_(0.5)

    def _draw_partner(self) -> int | None:
        """Return this rank's partner of the next step; every rank draws the same pairs."""
        ranks = list(range(self.problem.world_size))
        # Also drawn by a rank that sits out, or its schedule would fall behind the others'.
        self.schedule.shuffle(ranks)
        # Places 2i and 2i + 1 differ in the lowest bit only.
        place = ranks.index(self.problem.rank) ^ 1
        return ranks[place] if place < len(ranks) else None


def cost(problem: Problem) -> Cost:
    """Return one buffer for each paired rank."""
    pairs = problem.world_size // 2
    size = problem.count * problem.item_bytes if pairs else 0
    return Cost(sent_bytes=size, messages=min(pairs, 1), total_bytes=2 * pairs * size, steps=min(pairs, 1))
