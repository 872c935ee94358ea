"""FedKSeed: fine-tuning by slopes along K directions that all know, so that a round is told in pairs of numbers.

Qin et al., "Federated Full-Parameter Tuning of Billion-Sized Language Models with Communication Cost under 18
Kilobytes" (ICML 2024), with even sampling of seeds; slopes are MeZO's (Malladi et al., 2023, algorithm 1).

Algorithm (w₀: the weights before the first step; z₁ … z_K: directions drawn from seeds that all ranks know):
1. For H steps a rank draws a k, measures the slope s = (L(w + ε·z_k) − L(w − ε·z_k)) / 2ε on its sequences, and moves
   alone: w ← w − η·s·z_k.
2. It sends every other rank its H pairs (k, η·s); A_k takes in their mean over ranks.
3. Every rank builds w = w₀ − Σ A_k·z_k anew, from the K numbers alone.

Cost of a round: 8·H·(n − 1) bytes in n − 1 messages, whatever the model's size; who joins needs w₀ and the K numbers.
Memory: w, w₀, a copy while a slope is measured and z, 4P each; no gradients and no optimiser's state. Work: K
directions are drawn again at the end of each round.
Limits: all steps lie in a space of K dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from paceline import technique
from paceline.families.training.api.fine_tuning.directions import direction
from paceline.families.training.api.flat import Flat
from paceline.families.training.api.model import next_symbol_loss
from paceline.families.training.api.replica import Comm, Cost, Replica, Task
from paceline.families.training.api.rounds import ends_round, num_rounds

PAIR_BYTES = 8
"""Of a seed's number and a move, four each."""


def chosen(seed: int, step: int, rank: int, candidates: int) -> int:
    """Return the number of the direction along which a rank measures in a step."""
    # Another key than directions have: the choice must not depend on what is drawn with it.
    bits = np.random.Philox(key=[seed + 1, (step << 12) + rank])
    return int(np.random.Generator(bits).integers(candidates))


@technique(
    name="fedkseed",
    family="training",
    implements=("fine_tune",),
    summary="slopes along K shared directions; rounds are told in pairs of a seed's number and a move",
    paper="fedkseed",
    properties={"exact": False, "replicas": "apart", "agree": "rounds"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract of arXiv:2312.06353",
            "code": "github.com/Ahmed-Khaled-Saleh/FedKseed, a fork of the authors': client.py, server.py, "
            "optimizers/mezo_optimizer.py; the authors' README.md",
        },
        "deviations": (
            "Ranks tell each other; the authors' clients tell a server, which tells them the K numbers.",
            "Pairs hold the move, η·s, since rates here fall within a run; the authors' hold s, with one rate.",
            "All ranks take part in every round, with equal weight.",
            "w is put back from a copy after a slope; the authors add and subtract.",
            "Numbers of seeds are drawn by step and rank, evenly; FedKSeed-Pro prefers seeds whose slopes were large.",
        ),
        "constants": {
            "sync_every": {"here": 20, "authors": "set by the user (local_step)"},
            "candidates": {"here": 1024, "authors": "1024 in README.md (K); 4096 in the ledger's claim"},
            "PAIR_BYTES": {"here": 8, "authors": "a seed and a scalar"},
        },
        "checked_by": (
            "tests/unit/test_fedkseed.py::test_weights_are_what_the_pairs_of_all_ranks_say",
            "tests/unit/test_fedkseed.py::test_a_slope_is_that_of_the_loss",
        ),
    },
)
class FedKSeed(Replica):
    """Move alone, tell pairs, build the weights anew."""

    own_gradients = False

    def __init__(self, task: Task, comm: Comm, *, sync_every: int = 20, candidates: int = 1024) -> None:
        # No backward runs: the vector of gradients, 4P, is what slopes save beside activations.
        self.flat = Flat(task.model, gradients=False)
        super().__init__(task, comm)
        self.sync_every, self.candidates = sync_every, candidates
        self.start = self.register_state("start", self.flat.values.clone())
        self.pool = self.register_state("pool", torch.zeros(candidates, dtype=torch.float64))
        self.seeds = self.register_state("seeds", torch.zeros(sync_every, dtype=torch.int32))
        self.moves = self.register_state("moves", torch.zeros(sync_every))
        self.next_step = self.register_state("next_step", torch.zeros((), dtype=torch.int64))
        self.before = torch.empty_like(self.flat.values)
        self.slope = 0.0

    def make_optimizer(self) -> Optimizer:
        """Return plain SGD, which holds the rate and no state."""
        return torch.optim.SGD([self.flat.parameter], lr=self.task.peak_rate)

    def direction(self, number: int) -> Tensor:
        """Return z of a seed's number, (P,)."""
        found = direction(self.task.seed, number, 0, 0, self.task.num_parameters)
        return found.to(self.task.device)

    @torch.no_grad()
    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Measure a slope; return the mean loss at both points."""
        step = int(self.next_step)
        number = chosen(self.task.seed, step, self.comm.rank, self.candidates)
        self.seeds[step % self.sync_every] = number
        weights, distance, z = self.flat.values, self.task.epsilon, self.direction(number)
        self.before.copy_(weights)
        weights.add_(z, alpha=distance)
        above = float(next_symbol_loss(self.model, sequences_BS))
        # From the copy: (w + εz) − εz rounds.
        weights.copy_(self.before).add_(z, alpha=-distance)
        below = float(next_symbol_loss(self.model, sequences_BS))
        weights.copy_(self.before)
        self.slope = (above - below) / (2 * distance)
        return torch.tensor((above + below) / 2)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move along the direction, alone."""
        place = step % self.sync_every
        self.moves[place] = self.optimizer.param_groups[0]["lr"] * self.slope
        # The number that is told, and not the one that it was rounded from.
        self.flat.values.sub_(self.direction(int(self.seeds[place])), alpha=float(self.moves[place]))
        self.next_step.fill_(step + 1)

    @torch.no_grad()
    def exchange_parameters(self, step: int) -> None:
        """Tell the round's pairs when it ends, and build the weights from all ranks'."""
        if not ends_round(step, self.sync_every, self.task.steps):
            return
        count, size = step % self.sync_every + 1, self.comm.world_size
        told = torch.empty(size, 2, count, dtype=torch.int32)
        own = torch.stack([self.seeds[:count], self.moves[:count].view(torch.int32)])
        others = [rank for rank in range(size) if rank != self.comm.rank]
        transfer = self.comm.start(
            sends=[(own, rank) for rank in others], receives=[(told[rank], rank) for rank in others]
        )
        told[self.comm.rank].copy_(own)
        transfer.wait()
        # In the order of ranks and steps on all of them: sums of floating-point numbers depend on it.
        for seeds, moves in told:
            self.pool.index_add_(0, seeds.long(), moves.view(torch.float32).double() / size)
        self.build()

    def build(self) -> None:
        """Make the weights what the K numbers say."""
        self.flat.values.copy_(self.start)
        for number in torch.nonzero(self.pool)[:, 0].tolist():
            self.flat.values.sub_(self.direction(number), alpha=float(self.pool[number]))


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return what a rank sends: its pairs to every other rank, in one message a round."""
    others = task.world_size - 1
    return Cost(
        sent_bytes=task.steps * others * PAIR_BYTES,
        peak_bytes=min(sync_every, task.steps) * others * PAIR_BYTES,
        messages=num_rounds(sync_every, task.steps) * others,
    )
