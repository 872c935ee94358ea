"""1-bit Adam: Adam for a warm-up; then its variance is frozen and only the momentum's signs are exchanged.

Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed" (ICML 2021),
algorithm 1.

Algorithm (g: this rank's gradient; w: steps of warm-up):
1. For w steps: ordinary Adam on gradients that a ring averages.
2. Freeze v. In each later step: m ← β₁·m + (1 − β₁)·g with this rank's own g; m ← the mean over ranks of m,
   compressed to signs and scales with error feedback at workers and at the servers of its chunks;
   θ ← θ − η·m / (√v + ε).

Cost of a step: in the warm-up 2·(n − 1)/n · 4P bytes; afterwards 2·(n − 1)/n · P/8 bytes and a scale for each chunk:
1/32. Memory: m and v as in Adam, both sides' errors, 4P + 4P/n, messages of P/8, and 2/n · 4P of scratch for the ring.
Differences: the compressed all-reduce is the collectives family's ``onebit``. Adam without decay of weights, β₂ the
point's, 0.95; m's bias is corrected in all steps, and the frozen v keeps the correction that it had.
Limits: v is that of the warm-up for good; a learning rate that changes later cannot adapt it. On one rank nothing is
coded, so that its proofs there show Adam with a frozen variance.
"""

from __future__ import annotations

import torch
from paceline.baselines.collectives import onebit

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.replica import BETAS, Comm, Cost, FlatReplica, Task, UnsupportedError

EPSILON = 1e-8


@technique(
    name="one-bit-adam",
    family="training",
    implements=("data_parallel",),
    summary="Adam, then frozen variance and the momentum's signs with error feedback",
    paper="one-bit-adam",
    properties={
        "exact": False,
        "replicas": "identical",
        "equals_ddp": {"optimizer": "adamw", "arguments": {"warmup_share": 1.0}},
    },
)
class OneBitAdam(FlatReplica):
    """Own Adam over the flat vector, in two phases."""

    def __init__(self, task: Task, comm: Comm, *, warmup_share: float = 0.14, feedback: bool = True) -> None:
        if task.optimizer_name != "adamw":
            raise UnsupportedError(f"it is Adam; the point asks for {task.optimizer_name}")
        super().__init__(task, comm)
        self.warmup = warmup_steps(task.steps, warmup_share)
        count = self.flat.values.numel()
        self.momentum = self.register_state("momentum", torch.zeros_like(self.flat.values), kind="optimizer")
        self.variance = self.register_state("variance", torch.zeros_like(self.flat.values), kind="optimizer")
        self.compressed = onebit.OneBit(task.problem("all_reduce", count), comm, feedback=feedback)
        # Both errors are state: a resumed run without them would lose what compression still owes.
        self.register_state("worker_error", self.compressed.worker_error)
        self.register_state("server_error", self.compressed.server_error)
        self.ring = RingAverage(comm, count, dtype=torch.float32, device=task.device)

    def exchange_gradients(self, step: int) -> None:
        """Average gradients while warming up, compressed momenta afterwards."""
        beta = BETAS[0]
        if step < self.warmup:
            self.ring.run(self.flat.gradients)
            self.momentum.lerp_(self.flat.gradients, 1 - beta)
            return
        self.momentum.lerp_(self.flat.gradients, 1 - beta)
        # m and not g is compressed, and the result replaces m on every rank: replicas stay identical (algorithm 1).
        self.compressed.run(self.momentum)
        self.momentum.div_(self.comm.world_size)

    def update(self, step: int) -> None:
        """Take Adam's step with the variance of the warm-up."""
        # v has been updated this often; its bias correction freezes with it, or the step size would go on changing.
        count = min(step, self.warmup - 1) + 1
        if step < self.warmup:
            gradients = self.flat.gradients
            # After the ring: these are averaged gradients, so that v, like m, has equal bits on all ranks.
            self.variance.mul_(BETAS[1]).addcmul_(gradients, gradients, value=1 - BETAS[1])
        # The gradients have been used; their vector is the scratch for √v + ε, which saves 4P.
        scale = torch.div(self.variance, 1 - BETAS[1] ** count, out=self.flat.gradients).sqrt_().add_(EPSILON)
        # m's own correction uses the true step: m goes on being updated after the freeze.
        rate = self.optimizer.param_groups[0]["lr"] / (1 - BETAS[0] ** (step + 1))
        self.flat.values.addcdiv_(self.momentum, scale, value=-rate)


def warmup_steps(steps: int, share: float) -> int:
    """Return the steps before the variance is frozen: at least one."""
    return max(round(steps * share), 1)


def cost(task: Task, *, warmup_share: float) -> Cost:
    """Return the header's formula: rings while warming up, then compressed all-reduces."""
    full, messages = ring_cost(task.num_parameters, task.world_size)
    small = onebit.cost(task.problem("all_reduce", task.num_parameters))
    warmup = min(warmup_steps(task.steps, warmup_share), task.steps)
    rest = task.steps - warmup
    return Cost(
        sent_bytes=warmup * full + rest * small.sent_bytes,
        peak_bytes=full,
        messages=warmup * messages + rest * small.messages,
    )
