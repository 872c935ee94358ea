"""CO2: the outer gradient of a round travels during the next round, and what comes late counts less.

Sun et al., "CO2: Efficient Distributed Training with Full Communication-Computation Overlap" (ICLR 2024): local steps,
one asynchronous all-reduce a round, staleness gap penalty, clipped outer momentum. Facts from the abstract and the
authors' public optimiser (the plain momentum of the displacement, divided by a penalty).

Algorithm (φ: global weights, equal everywhere; θ: a replica's; round t starts from φₜ):
1. H local steps from φₜ give θ; Δₜ = φₜ − θ sets out around a ring, its messages spread evenly over round t + 1.
2. When round t ends, the mean of Δₜ₋₁ has arrived. It was taken at φₜ₋₁, and φ has moved on since, by s = φₜ − φₜ₋₁.
3. Λ = 1 + |s|/s̄ for each element, where s̄ is the mean of |s| over elements and rounds.
4. m ← clip(μ·m + Δₜ₋₁/Λ, ± c times the root mean square of Δₜ₋₁); φₜ₊₁ = φₜ − η·m.

Cost of a round: 2·(n − 1)/n · 4P bytes in 2·(n − 1) messages, as DiLoCo's, none of it waited for when all
of them take no longer than the H steps. Memory: φ, m and the travelling Δ, 12P, and scratch of 2/n · 4P for the ring.
Limits: the first two rounds start from the same weights. No sharding of states, which the paper combines with this. No
option makes it synchronous training, on one rank neither: with H = 1, η = 1, μ = 0, no penalty, no clip and plain SGD
a step is that of gradients which are one step old, φₜ₊₁ = φₜ − rate·ḡ(φₜ₋₁).
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, late_ring_cost
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.rounds import ends_round


@technique(
    name="co2",
    family="training",
    implements=("data_parallel",),
    summary="rounds of local steps whose exchange hides behind the next round",
    paper="co2",
    properties={"exact": False, "replicas": "identical", "agree": "rounds"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "the abstract, read for this card; the penalty's definition could not be read",
            "code": (
                "github.com/weigao266/fairscale-CO2 and fairseq-CO2 (named by github.com/OpenNLPLab/CO2): "
                "fairscale/experimental/nn/data_parallel/gossip/co2.py, README.md; co2_examples/run_co2_local.sh, "
                "fairseq/dataclass/configs.py, fairseq/models/distributed_fairseq_model.py"
            ),
        },
        "deviations": (
            (
                "Λ is the gap-aware one of Barkai et al. (ICLR 2020) by default, element by element; the authors' "
                "code divides by a constant, which is 1 by default."
            ),
            "``by_element`` off divides all elements by 1 + mean|s|/s̄, which comes close to a constant.",
            (
                "The momentum is clipped to a multiple of what it takes in, and the result is used; the authors' "
                "code clips to a number, is off by default, and throws the result away."
            ),
            (
                "The first round's end leaves φ as it is, and after the last round one more outer step takes what "
                "still travels."
            ),
            "States are not sharded, which the authors' code does by default (32 shards).",
            (
                "There is one period; the authors' code has two, of averages that travel behind local steps and "
                "of outer steps."
            ),
        ),
        "constants": {
            "sync_every": {
                "here": 20,
                "authors": "20 (co2_outer_frequency) in fairseq-CO2, 48 in co2.py; averages travel behind 3 "
                "(localsgd_frequency)",
                "official": 48,
                "source": "github.com/weigao266/fairscale-CO2: fairscale/experimental/nn/data_parallel/gossip/co2.py",
                "differs": "rounds are shorter, since runs have fewer steps",
            },
            "outer_rate": {
                "here": 1.0,
                "authors": "1.0, co2.py",
                "official": 1.0,
                "source": "github.com/weigao266/fairscale-CO2: fairscale/experimental/nn/data_parallel/gossip/co2.py",
            },
            "outer_momentum": {
                "here": 0.2,
                "authors": "0.2 in README.md and run_co2_local.sh; 0.5, co2.py; by ranks 0 to 0.6 in fairseq-CO2",
                "official": 0.5,
                "source": "github.com/weigao266/fairscale-CO2: fairscale/experimental/nn/data_parallel/gossip/co2.py",
                "differs": "the value of README.md and run_co2_local.sh",
            },
            "penalty": {
                "here": True,
                "authors": "a constant of 1.0 (co2_gap_penalty), so none by default, co2.py",
                "official": 1.0,
                "source": "github.com/weigao266/fairscale-CO2: fairscale/experimental/nn/data_parallel/gossip/co2.py",
                "differs": "the penalty is the gap-aware one, and not a constant",
            },
            "clip": {
                "here": 10.0,
                "authors": "1.0 absolute (co2_clip_threshold), off by default, on in run_co2_local.sh",
                "official": 1.0,
                "source": "github.com/weigao266/fairscale-CO2: fairscale/experimental/nn/data_parallel/gossip/co2.py",
                "differs": "clipped to a multiple of what the momentum takes in; theirs is to a number, off by default",
            },
            "by_element": {
                "here": True,
                "authors": "one constant for all, co2.py",
                "official": False,
                "source": "github.com/weigao266/fairscale-CO2: fairscale/experimental/nn/data_parallel/gossip/co2.py",
                "differs": "the gap-aware penalty is of each element; by_element off comes close to theirs",
            },
        },
        "checked_by": (
            "tests/unit/test_co2.py::test_outer_steps_are_one_round_late_penalised_and_clipped",
            "tests/unit/test_co2.py::test_without_rounds_momentum_and_penalty_it_is_descent_with_gradients_that_are_one_step_old",
        ),
    },
)
class CO2(FlatReplica):
    """Exchange outer gradients one round late; what is shipped are the global weights."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        sync_every: int = 20,
        outer_rate: float = 1.0,
        outer_momentum: float = 0.2,
        penalty: bool = True,
        clip: float = 10.0,
        by_element: bool = True,
    ) -> None:
        super().__init__(task, comm)
        self.sync_every, self.outer_rate, self.outer_momentum = sync_every, outer_rate, outer_momentum
        self.penalty, self.clip, self.by_element = penalty, clip, by_element
        self.slow = self.register_state("slow", self.flat.values.clone())
        self.momentum = self.register_state("momentum", torch.zeros_like(self.slow))
        self.outer = self.register_state("outer", torch.zeros_like(self.slow))
        """The displacement that travels, or its mean once it has arrived."""
        self.late = self.register_state("late", torch.zeros(1, dtype=torch.bool))
        """Whether there is one."""
        self.gaps = self.register_state("gaps", torch.zeros(2, dtype=torch.float64))
        """Sum over rounds of the mean size of an element's outer step, and the number of such steps."""
        self.ring = RingAverage(comm, len(self.slow), dtype=torch.float32, device=task.device)

    def exchange_parameters(self, step: int) -> None:
        """Pass on what is due of what travels; when a round ends, apply it and send what the round gave."""
        self.ring.advance(step % self.sync_every + 1, self.sync_every)
        if not ends_round(step, self.sync_every, self.task.steps):
            return
        # Saved first: the round began at φₜ, and _apply moves φ on. From the new φ, Δₜ would contain s.
        start = self.flat.gradients.copy_(self.slow)  # free until the next backward
        self._apply()
        torch.sub(start, self.flat.values, out=self.outer)
        self.ring.begin(self.outer)
        self.late.fill_(True)
        # Every replica goes on from φ; what its own round gave travels now, and is in φ one round later, as a mean.
        self.flat.values.copy_(self.slow)

    def finish(self) -> None:
        """Apply the last round's displacement."""
        self._apply()
        self.flat.values.copy_(self.slow)

    def pause(self) -> None:
        """Let what travels arrive; it is applied when it is due."""
        self.ring.complete()

    def weights(self) -> list[Tensor]:
        """Return the global weights, which a round leaves untouched until it ends."""
        return self.flat.pieces(self.slow)

    def _apply(self) -> None:
        """Take the outer step of the displacement that is one round old."""
        self.ring.complete()
        if not self.late:
            return
        # The limit is taken from Δ as it arrived; after the division it would depend on the penalty.
        limit = self.clip * float(self.outer.square().mean().sqrt())
        # Λ reads the momentum of the previous outer step, so it comes before the momentum's update.
        outer = self.outer.div_(self._gap_penalty()) if self.penalty else self.outer
        self.momentum.mul_(self.outer_momentum).add_(outer).clamp_(-limit, limit)
        self.slow.sub_(self.momentum, alpha=self.outer_rate)
        # Part of checkpoints: a resumed run must divide by the s̄ of one that was not interrupted.
        self.gaps[0] += self.outer_rate * float(self.momentum.abs().mean())
        self.gaps[1] += 1
        self.late.fill_(False)

    def _gap_penalty(self) -> Tensor | float:
        """Return 1 + |s|/s̄, where s, the last outer step, is η times the momentum that it took."""
        total, count = map(float, self.gaps)
        # The first displacement is applied where it was taken: there is no gap, and s̄ would be 0/0.
        if total == 0.0:
            return 1.0
        if not self.by_element:
            return 1.0 + self.outer_rate * count / total * float(self.momentum.abs().mean())
        return self.momentum.abs().mul_(self.outer_rate * count / total).add_(1.0)


def cost(task: Task, *, sync_every: int) -> Cost:
    """Return the header's formula for all rounds; the last step sends a whole round's, and what the round before left.

    Args:
        task: The task.
        sync_every: H.
    """
    sent, peak, messages = late_ring_cost(task.num_parameters, task.world_size, task.steps, sync_every)
    return Cost(sent_bytes=sent, peak_bytes=peak, messages=messages)
