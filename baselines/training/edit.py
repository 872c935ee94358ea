"""EDiT: local steps, then each layer is synchronised when the next forward needs it, and odd replicas weigh little.

Cheng et al., "EDiT: A Local-SGD-Based Efficient Distributed Training Method for Large Language Models" (ICLR 2025),
synchronisation layer by layer and the penalty of pseudo-gradients; constants as in the authors' public configuration
where nothing else is said (three deviations, a clip of ten, as in their example).

Algorithm (for each unit, a layer or the rest; φ: global weights, θ: a replica's; Gᵢ: norm of its Δᵢ = φ − θ):
1. After H inner steps a unit waits until the next forward reaches it. While a unit's exchange travels, the unit before
   it computes.
2. A replica whose norm lies more than δ deviations above its own moving average is left out: Gᵢ = ∞. The average and
   variance take in the others' norms, with a share of α; the first rounds only fill them.
3. wᵢ = exp(−Gᵢ/T) / Σ exp(−Gⱼ/T). With all left out the unit goes back to φ.
4. Δ ← Σ wᵢ·Δᵢ, shortened to at most a length of c; Nesterov's outer step on φ; θ ← φ.

Cost of a round: a ring average of 4P bytes, and a number to each other rank for every unit (by time: and one more).
Memory: φ and m, 8P, the exchanges' vectors 4P, and rings' scratch.
Limits: what is shipped is φ, which lags by one round until the forward after a round's end. With H = 1, an outer
rate of 1, no momentum, nothing left out, equal weights (T → ∞) and plain SGD it equals synchronous training, seen one
step later.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.buckets import make_bucket
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.replica import Comm, Cost, Replica, Task, UnsupportedError
from paceline.families.training.api.rounds import ends_round, nesterov_, num_rounds
from paceline.families.training.api.sharded import unit_groups, unit_sizes

NUMBER_BYTES = 4


@technique(
    name="edit",
    family="training",
    implements=("data_parallel",),
    summary="local steps, layers synchronised in the next forward, odd replicas penalised",
    paper="edit",
    properties={
        "exact": False,
        "replicas": "identical",
        "agree": "rounds",
        "equals_ddp": {
            "optimizer": "sgd",
            "arguments": {
                "sync_every": 1,
                "outer_rate": 1.0,
                "outer_momentum": 0.0,
                "fill_rounds": 1_000_000,
                "temperature": 1e9,
                "longest": 1e9,
            },
            "late": True,
        },
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "layer by layer synchronisation and the penalty by the header, not read for this card",
            "code": (
                "github.com/intelligent-machine-learning/atorch: docs/README-EDiT.md, "
                "atorch/local_sgd/utils/anomaly_detection.py, and the FSDP runtime's synchronisation"
            ),
        },
        "deviations": (
            (
                "The average of norms has a share of 0.1 and four rounds to fill it, since a run here has twenty "
                "rounds."
            ),
            (
                "Odd norms stay out of the average, as in the authors' code for DDP; their code for FSDP takes "
                "every norm in, after it has judged it."
            ),
            (
                "A norm is odd beyond three deviations; the authors' threshold grows with the deviation of recent "
                "z-scores, where that is above one."
            ),
            "Displacements are averaged; their example with FSDP has their ``gta`` reducer, which trims by sign.",
            "A left-out replica weighs exactly nothing; the authors add 10⁶ to its norm before the softmax.",
            "No synchronous steps come before the first round, which is the authors' default too.",
            "Nothing is sharded inside a node.",
            "The exchange of a unit begins one unit ahead, not more.",
            (
                "With ``by_time`` (A-EDiT) a round lasts as long as the fastest rank needs for H steps; the "
                "authors' ends after a number of seconds."
            ),
        ),
        "constants": {
            "sync_every": {
                "here": 20,
                "authors": "1 by default, 10 in their example, README-EDiT.md",
                "official": 1,
                "source": "github.com/intelligent-machine-learning/atorch: docs/README-EDiT.md",
                "differs": "a round of one step is synchronous training; runs here have twenty rounds of twenty",
            },
            "outer_rate": {
                "here": 0.7,
                "authors": "0.7 in their example, README-EDiT.md",
                "official": 0.7,
                "source": "github.com/intelligent-machine-learning/atorch: docs/README-EDiT.md",
            },
            "outer_momentum": {
                "here": 0.9,
                "authors": "0.8 in their example, README-EDiT.md",
                "official": 0.8,
                "source": "github.com/intelligent-machine-learning/atorch: docs/README-EDiT.md",
                "differs": "DiLoCo's, beside which it stands; suites that compare both take the best of four trials",
            },
            "deviations": {
                "here": 3.0,
                "authors": "3 (ewma_threshold)",
                "official": 3.0,
                "source": "github.com/intelligent-machine-learning/atorch: docs/README-EDiT.md",
            },
            "average_share": {
                "here": 0.1,
                "authors": "0.02 (ewma_alpha)",
                "official": 0.02,
                "source": "github.com/intelligent-machine-learning/atorch: docs/README-EDiT.md",
                "differs": "the average fills within a run, which has twenty rounds",
            },
            "fill_rounds": {
                "here": 4,
                "authors": "120 (ewma_warmup_steps)",
                "official": 120,
                "source": "github.com/intelligent-machine-learning/atorch: docs/README-EDiT.md",
                "differs": "the average fills within a run, which has twenty rounds",
            },
            "temperature": {
                "here": 1.0,
                "authors": "1.0 where norms weigh",
                "official": None,
                "source": "github.com/intelligent-machine-learning/atorch: docs/README-EDiT.md",
                "differs": "norms weigh, which their default leaves out; its value is 1 where they do",
            },
            "longest": {
                "here": 10.0,
                "authors": "off; usually 1 or 10, README-EDiT.md",
                "official": None,
                "source": "github.com/intelligent-machine-learning/atorch: docs/README-EDiT.md",
                "differs": "clipped as in their examples (clip_pseudo_grad 10); off by default",
            },
            "by_time": {
                "here": False,
                "authors": "off (use_async)",
                "official": False,
                "source": "github.com/intelligent-machine-learning/atorch: docs/README-EDiT.md",
            },
        },
        "checked_by": (
            "tests/unit/test_outer_steps.py::test_units_take_the_penalised_mean_of_replicas_that_are_not_odd",
            "tests/unit/test_training.py::test_a_norm_is_odd_beside_its_own_past_and_leaves_no_trace_in_it",
        ),
    },
)
class Edit(Replica):
    """Synchronise unit by unit while the next forward goes on."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        sync_every: int = 20,
        outer_rate: float = 0.7,
        outer_momentum: float = 0.9,
        deviations: float = 3.0,
        average_share: float = 0.1,
        fill_rounds: int = 4,
        temperature: float = 1.0,
        longest: float = 10.0,
        by_time: bool = False,
    ) -> None:
        if fill_rounds < 1 or sync_every < 1:
            raise UnsupportedError(
                "fill_rounds and sync_every are at least 1: a past of no rounds makes every norm odd"
            )
        if by_time and sync_every < 2:
            raise UnsupportedError(
                "rounds that end by time have at least two steps: the first one waits for all"
            )
        groups = list(unit_groups(task.model))
        groups = [groups[-1], *groups[:-1]]  # in the order of forward: the embedding is part of the rest
        self.units = [make_bucket(parameters, task.world_size) for _, parameters in groups]
        super().__init__(task, comm)
        self.sync_every, self.outer_rate, self.outer_momentum = sync_every, outer_rate, outer_momentum
        self.deviations, self.average_share, self.fill_rounds = deviations, average_share, fill_rounds
        self.temperature, self.longest, self.by_time = temperature, longest, by_time
        self.slow = [self.register_state(f"slow {i}", u.values.clone()) for i, u in enumerate(self.units)]
        self.momentum = [
            self.register_state(f"momentum {i}", torch.zeros_like(s)) for i, s in enumerate(self.slow)
        ]
        self.outer = [torch.empty_like(s) for s in self.slow]
        self.rings = [RingAverage(comm, len(s), dtype=torch.float32, device=task.device) for s in self.slow]
        count = len(self.units)
        self.average = self.register_state("average", torch.zeros(count, 2, dtype=torch.float64))
        """Of this replica's norms: mean and variance."""
        self.rounds = self.register_state("rounds", torch.zeros(count, dtype=torch.int64))
        self.waiting = self.register_state("waiting", torch.zeros(count, dtype=torch.bool))
        self.heard: list[float] = []
        """Weights of all replicas in the exchange that is under way."""
        self.begun = self.ended = 0.0
        self.taken = 0
        """When this replica's first step of the round and its last one ended, and the steps in between."""
        self.period: float | None = None
        """Seconds of a round after its first step, once one was timed."""
        for number, (module, _) in enumerate(groups):
            module.register_forward_pre_hook(lambda *_, number=number: self._arrive(number))

    def rests(self, step: int) -> bool:
        """Tell whether no more than half of a step would still fit into a round that ends by time."""
        if not self.by_time or self.period is None or step % self.sync_every == 0:
            return False
        own = (self.ended - self.begun) / self.taken if self.taken else 0.0
        return self.now() - self.begun + own / 2 >= self.period

    def update(self, step: int) -> None:
        """Apply the gradients, and time the steps after a round's first, in which all wait for one another."""
        super().update(step)
        self.ended = self.now()
        if step % self.sync_every == 0:
            # From the end of the first step: the units' exchanges in its forward make ranks wait for each other.
            self.begun, self.taken = self.ended, 0
        else:
            self.taken += 1

    def exchange_parameters(self, step: int) -> None:
        """Let all units wait for their exchange when a round ends."""
        if ends_round(step, self.sync_every, self.task.steps):
            self.waiting.fill_(True)
            if self.by_time:
                own = (self.ended - self.begun) / self.taken if self.taken else math.inf
                fastest = min(self._gather(own))
                # Without the first step, which waits for the slowest. All ranks compute this from the same numbers.
                self.period = (self.sync_every - 1) * fastest if math.isfinite(fastest) else None

    def now(self) -> float:
        """Return seconds by a clock that only goes forward."""
        return time.perf_counter()

    def finish(self) -> None:
        """Synchronise what still waits."""
        for number in range(len(self.units)):
            self._arrive(number)

    def weights(self) -> list[Tensor]:
        """Return the global weights."""
        found: dict[int, Tensor] = {}
        for unit, slow in zip(self.units, self.slow, strict=True):
            at = 0
            for p in unit.parameters:
                found[id(p)] = slow[at : at + p.numel()].view(p.shape)
                at += p.numel()
        return [found[id(p)] for p in self.model.parameters()]

    def _arrive(self, number: int) -> None:
        """Complete a unit's exchange before it is used, and begin the next one's."""
        # The hook fires in every forward; only the first one after a round's end has something to complete.
        if not self.waiting[number]:
            return
        if number == 0:
            self._begin(0)
        # Before the next unit begins: a ring's posted receives would take the numbers that _begin sends.
        self._complete(number)
        if number + 1 < len(self.units):
            self._begin(number + 1)

    def _begin(self, number: int) -> None:
        """Agree on weights from the norms of all replicas, and start the weighted mean."""
        unit, outer = self.units[number], self.outer[number]
        torch.sub(self.slow[number], unit.values, out=outer)
        own = float(outer.norm())
        # ∞ travels in place of the norm: exp(−∞) is a weight of zero on every rank, without a second message.
        norms = self._gather(math.inf if self._is_odd(number, own) else own)
        self.heard = penalty_weights(norms, self.temperature)
        share = self.heard[self.comm.rank]
        # n·wᵢ, since the ring divides by n. A zero weight writes zeros: 0·NaN would spread a NaN.
        outer.mul_(share * self.comm.world_size) if share > 0 else outer.zero_()
        self.rings[number].begin(outer)

    def _complete(self, number: int) -> None:
        """Take the outer step of a unit, or go back to the global weights when every replica is left out."""
        self.rings[number].complete()
        slow, outer = self.slow[number], self.outer[number]
        if sum(self.heard) > 0:
            length = float(outer.norm())
            # 1e-12 keeps the ratio finite for a unit that did not move. Clipped is the weighted mean, not each Δᵢ.
            outer.mul_(min(self.longest / (length + 1e-12), 1.0))
            rate, share = self.outer_rate, self.outer_momentum
            nesterov_(slow, self.momentum[number], outer, rate=rate, momentum_share=share)
        self.units[number].values.copy_(slow)
        self.waiting[number] = False

    def _is_odd(self, number: int, norm: float) -> bool:
        """Judge a norm by the moving average of this replica's own, and let it take in one that is not odd."""
        mean, variance = self.average[number].tolist()
        known = int(self.rounds[number])
        self.rounds[number] += 1
        if not math.isfinite(norm):
            return True
        # One-sided: only large norms are odd. They stay out of the average, or they would excuse the next.
        if known >= self.fill_rounds and norm - mean > self.deviations * math.sqrt(variance):
            return True
        # 1/(known + 1): a plain mean at first. From zero, the average would lie below all norms for 1/α rounds.
        share = max(self.average_share, 1 / (known + 1))
        self.average[number, 0] = mean + share * (norm - mean)
        self.average[number, 1] = (1 - share) * (variance + share * (norm - mean) ** 2)
        return False

    def _gather(self, own: float) -> list[float]:
        rank, size = self.comm.rank, self.comm.world_size
        # The own number is rounded to float32 as well: all ranks must compute weights from the same bits.
        found = torch.full((size,), own, dtype=torch.float32, device=self.task.device)
        others = [(rank + shift) % size for shift in range(1, size)]
        self.comm.start(
            sends=[(found[rank : rank + 1].clone(), peer) for peer in others],
            receives=[(found[peer : peer + 1], peer) for peer in others],
        ).wait()
        return [float(v) for v in found.tolist()]


def penalty_weights(norms: Sequence[float], temperature: float) -> list[float]:
    """Return exp(−G/T) of every replica's norm, normalised; all zero when every norm is infinite."""
    least = min(norms)
    if math.isinf(least):
        return [0.0] * len(norms)
    # The least norm is subtracted before exp, as in a stable softmax: norms far above T would underflow to 0/0.
    shares = [math.exp(-(g - least) / temperature) for g in norms]
    return [share / sum(shares) for share in shares]


def cost(task: Task, *, sync_every: int, by_time: bool) -> Cost:
    """Return the header's formula for all rounds; two rounds' exchanges may meet in the last step.

    Args:
        task: The task.
        sync_every: H.
        by_time: Whether a round's end is timed, with a number to each other rank.
    """
    n, sizes = task.world_size, unit_sizes(task.model)
    if n == 1:
        return Cost(sent_bytes=0, peak_bytes=0, messages=0)
    rings = [ring_cost(size, n) for size in sizes]
    numbers = (len(sizes) + by_time) * (n - 1)
    sent = sum(r[0] for r in rings) + numbers * NUMBER_BYTES
    messages = sum(r[1] for r in rings) + numbers
    rounds = num_rounds(sync_every, task.steps)
    last = (task.steps - 1) % sync_every == 0  # the round before ends in its forward, the last one after it
    return Cost(
        sent_bytes=rounds * sent,
        peak_bytes=sent * (2 if last and rounds > 1 else 1),
        messages=rounds * messages,
    )
