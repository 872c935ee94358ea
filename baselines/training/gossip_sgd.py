"""Gossip: ranks train alone, and every H steps two at a time average their parameters.

Decentralised SGD with random matchings; Koloskova et al., "A Unified Theory of Decentralized SGD with Changing Topology
and Local Updates" (ICML 2020), analyse it; here graphs are pairs. Beside single-merge, what it does without the last
average.

Algorithm: H inner steps; all draw the same pairs from a shared seed; θ ← the mean of the pair's. The inner
optimiser's moments stay local.
Cost of a round: 4P bytes in one message for each paired rank, whatever n is; with an odd n one rank sits out.
Memory: the partner's parameters, 4P.
Limits: replicas differ; what is shipped is one of them, and the reported loss is the mean over all. H as long as the
run is no gossip but for the last step's.
"""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.training.api.pairs import partners
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.rounds import ends_round, round_ends


@technique(
    name="gossip-sgd",
    family="training",
    implements=("data_parallel",),
    summary="H local steps, then the mean of parameters with one random partner",
    properties={
        "exact": False,
        "replicas": "apart",
        "agree": "pairs",
        "equals_ddp": {"optimizer": "sgd", "arguments": {"sync_every": 1}, "max_ranks": 2},
    },
)
class GossipSgd(FlatReplica):
    """Average parameters with one partner at the end of each round."""

    def __init__(self, task: Task, comm: Comm, *, sync_every: int = 20) -> None:
        super().__init__(task, comm)
        self.sync_every = sync_every
        self.other = torch.empty_like(self.flat.values)

    def exchange_parameters(self, step: int) -> None:
        """Meet a partner when a round ends."""
        if ends_round(step, self.sync_every, self.task.steps):
            self.meet(step // self.sync_every)

    def meet(self, number: int) -> None:
        """Average with the partner of a round, if there is one."""
        partner = partners(self.task.seed, number, self.members).get(self.task.rank)
        if partner is None:
            return
        self.comm.start(sends=[(self.flat.values, partner)], receives=[(self.other, partner)]).wait()
        # a + b has the bits of b + a: partners end a round alike.
        self.flat.values.add_(self.other).mul_(0.5)


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return the header's formula for all rounds."""
    return meetings_cost(task, round_ends(sync_every, task.steps), sync_every)


def meetings_cost(task: Task, ends: list[int], sync_every: int) -> Cost:
    """Return what the busiest rank sends its partners in the rounds that end with some steps."""
    size = 4 * task.num_parameters
    met = [0] * task.world_size
    for step in ends:
        for rank in partners(task.seed, step // sync_every, range(task.world_size)):
            met[rank] += 1
    return Cost(sent_bytes=max(met) * size, peak_bytes=size if max(met) else 0, messages=max(met))
