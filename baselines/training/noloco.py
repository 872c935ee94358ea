"""NoLoCo: H local steps, then an outer step with one partner drawn at random; no collective at all.

Kolehmainen et al., "NoLoCo: No-all-reduce Low Communication Training Method for Large Models" (2025), section 3: the
modified Nesterov momentum over a small random group, here of two.

Algorithm (for each replica φ: slow weights, θ: fast ones, δ: momentum; ⟨·⟩: mean over the pair):
1. θ ← φ; H inner steps on its own data; Δ ← θ − φ.
2. All draw the same pairs from a shared seed. Partners exchange φ and Δ.
3. δ ← α·δ + β·⟨Δ⟩ − γ·(φ − ⟨φ⟩); φ ← φ + δ. The last term pulls partners together, so that replicas cannot drift apart
   without bound although no step involves all of them.

Cost of a round: 2 · 4P bytes in 2 messages for each paired rank, whatever n is; with an odd n one rank sits out. A rank
that comes back is sent nothing: its partners pull it along.
Memory: φ, δ and two buffers of the partner's, 16P.
Limits: replicas differ; what is shipped is one of them, and the reported loss is the mean over all. With H = 1, α = 0,
β = 1 and plain SGD two ranks equal synchronous training; more do not, since a pair's mean is not that of all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.pairs import partners
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.rounds import ends_round, round_ends


@technique(
    name="noloco",
    family="training",
    implements=("data_parallel",),
    summary="H local steps, then an outer step with one random partner",
    paper="noloco",
    properties={
        "exact": False,
        "replicas": "apart",
        "agree": "pairs",
        "equals_ddp": {
            "optimizer": "sgd",
            "arguments": {"sync_every": 1, "alpha": 0.0, "beta": 1.0},
            "max_ranks": 2,
        },
        "elastic": True,
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "section 3 by the header; the abstract, read for this card",
            "code": (
                "github.com/gensyn-ai/noloco: src/noloco/sparse_optimizer_c.py, "
                "configs/no_reduce_exp/C4/c4_noloco_mean_100m_8.yaml"
            ),
        },
        "deviations": (
            (
                "The pull between partners is 1; the authors' code pulls by the outer rate, 0.7; it must lie "
                "between α and 2 + α for pairs."
            ),
            "Activations are not routed between pipelines at random, which needs a pipeline.",
            "Partners swap what they have; the authors' first of a pair collects, averages and sends back.",
            "An odd number of replicas is allowed, and one sits out; the authors refuse it.",
        ),
        "constants": {
            "sync_every": {
                "here": 20,
                "authors": "50, c4_noloco_mean_100m_8.yaml",
                "official": 50,
                "source": "github.com/gensyn-ai/noloco: configs/no_reduce_exp/C4/c4_noloco_mean_100m_8.yaml",
                "differs": "rounds are shorter, since runs have fewer steps",
            },
            "alpha": {
                "here": 0.5,
                "authors": "0.5, c4_noloco_mean_100m_8.yaml",
                "official": 0.5,
                "source": "github.com/gensyn-ai/noloco: configs/no_reduce_exp/C4/c4_noloco_mean_100m_8.yaml",
            },
            "beta": {
                "here": 0.7,
                "authors": "0.7 (outer_lr), c4_noloco_mean_100m_8.yaml",
                "official": 0.7,
                "source": "github.com/gensyn-ai/noloco: configs/no_reduce_exp/C4/c4_noloco_mean_100m_8.yaml",
            },
            "gamma": {
                "here": 1.0,
                "authors": "0.7: outer_lr again, sparse_optimizer_c.py",
                "official": 0.7,
                "source": "github.com/gensyn-ai/noloco: src/noloco/sparse_optimizer_c.py",
                "differs": "the pull between partners is 1; it must lie between alpha and 2 + alpha for pairs",
            },
        },
        "checked_by": ("tests/unit/test_outer_steps.py::test_partners_mix_momenta_moves_and_weights",),
    },
)
class NoLoCo(FlatReplica):
    """Exchange slow weights and displacement with one partner at the end of each round."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        sync_every: int = 20,
        alpha: float = 0.5,
        beta: float = 0.7,
        gamma: float = 1.0,
    ) -> None:
        super().__init__(task, comm)
        self.sync_every, self.alpha, self.beta, self.gamma = sync_every, alpha, beta, gamma
        self.slow = self.register_state("slow", self.flat.values.clone())
        self.momentum = self.register_state("momentum", torch.zeros_like(self.slow))
        self.other_slow = torch.empty_like(self.slow)
        self.other_change = torch.empty_like(self.slow)

    def exchange_parameters(self, step: int) -> None:
        """Take the outer step when a round ends."""
        if not ends_round(step, self.sync_every, self.task.steps):
            return
        # Gradients are free until the next backward, so the displacement needs no buffer of its own.
        change = torch.sub(self.flat.values, self.slow, out=self.flat.gradients)
        partner = self._partner(step // self.sync_every)
        self.momentum.mul_(self.alpha)
        if partner is None:
            # Nobody to meet: ⟨Δ⟩ is the own Δ, and φ − ⟨φ⟩ is zero, so the pull drops out.
            self.momentum.add_(change, alpha=self.beta)
        else:
            # Sends and receives of both partners start together, so neither waits for the other to receive first.
            self.comm.start(
                sends=[(self.slow, partner), (change, partner)],
                receives=[(self.other_slow, partner), (self.other_change, partner)],
            ).wait()
            # a + b has the bits of b + a: partners of the first round, which began alike, end it alike.
            self.momentum.add_(change.add_(self.other_change), alpha=self.beta / 2)
            # φ − ⟨φ⟩ of a pair is half of φ − φ′, hence γ/2.
            self.momentum.sub_(self.other_slow.neg_().add_(self.slow), alpha=self.gamma / 2)
        self.slow.add_(self.momentum)
        self.flat.values.copy_(self.slow)

    def change_members(self, step: int, members: tuple[int, ...]) -> None:
        """Draw pairs among those who are there; who comes back goes on from its own slow weights."""
        if self.comm.rank in members and self.comm.rank not in self.members:
            self.flat.values.copy_(self.slow)
        self.members = members

    def weights(self) -> list[Tensor]:
        """Return this replica's slow weights."""
        return self.flat.pieces(self.slow)

    def _partner(self, number: int) -> int | None:
        """Return this rank's partner of a round; every rank draws the same pairs."""
        return partners(self.task.seed, number, self.members).get(self.task.rank)


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return the header's formula for all rounds; with an odd number of ranks the busiest may never sit out."""
    sent, everyone = 2 * 4 * task.num_parameters, range(task.world_size)
    rounds = dict.fromkeys(everyone, 0)
    for step in round_ends(sync_every, task.steps):
        # The same draw as in the run: with an odd number, who sits out decides which rank is busiest.
        members = task.absence.members(step, task.world_size) if task.absence else everyone
        for rank in partners(task.seed, step // sync_every, members):
            rounds[rank] += 1
    busiest = max(rounds.values())
    return Cost(sent_bytes=busiest * sent, peak_bytes=sent if busiest else 0, messages=2 * busiest)
