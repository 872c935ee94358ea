"""1-bit Adam: Adam for a warm-up; then its variance is frozen and only the momentum's signs are exchanged.

Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed" (ICML 2021),
algorithm 1.

Algorithm (g: this rank's gradient; w: steps of warm-up):
1. For w steps: ordinary Adam on gradients that a ring averages.
2. Freeze v. In each later step: m ← β₁·m + (1 − β₁)·g with this rank's own g; m ← the mean over ranks of m,
   compressed to signs and scales with error feedback at workers and at the servers of its chunks;
   θ ← θ − η·m / (√v + ε).

Cost of a step: in the warm-up 2·(n − 1)/n · 4P bytes; afterwards 2·(n − 1)/n · P/8 bytes and a scale for each chunk:
1/32. With ``by_tensor`` every tensor has chunks, scales and messages of its own.
Memory: m and v as in Adam, both sides' errors, 4P + 4P/n, messages of P/8, and 2/n · 4P of scratch for the ring.
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
    fidelity={
        "source": {
            "read": "code",
            "paper": "algorithm 1 by the header, not read for this card",
            "code": (
                "github.com/microsoft/DeepSpeed: deepspeed/runtime/fp16/onebit/adam.py, "
                "deepspeed/runtime/comm/nccl.py"
            ),
        },
        "deviations": (
            (
                "The momentum is one vector with a scale for each chunk of a server; DeepSpeed compresses each "
                "tensor by itself, so that each has its own scale, which ``by_tensor`` does."
            ),
            "Scales are mean magnitudes; DeepSpeed's are roots of mean squares.",
            (
                "β₂ is the point's, 0.95, where DeepSpeed's is 0.999: the frozen variance is that of some twenty "
                "steps."
            ),
            (
                "m's bias is corrected in all steps, and the frozen v keeps the correction that it had; "
                "DeepSpeed's update corrects neither."
            ),
            "The warm-up is a share of the run; DeepSpeed's is a number of steps.",
        ),
        "constants": {
            "warmup_share": {
                "here": 0.14,
                "authors": "a number of steps, 100000 by default (freeze_step), adam.py",
                "official": 100000,
                "source": "github.com/microsoft/DeepSpeed: deepspeed/runtime/fp16/onebit/adam.py (steps)",
                "differs": "the warm-up is a share of the run",
            },
            "by_tensor": {
                "here": False,
                "authors": "always, adam.py",
                "official": True,
                "source": "github.com/microsoft/DeepSpeed: deepspeed/runtime/fp16/onebit/adam.py",
                "differs": "the momentum is one vector with a scale for each chunk; by_tensor does as the code",
            },
            "feedback": {
                "here": True,
                "authors": "always on, nccl.py",
                "official": True,
                "source": "github.com/microsoft/DeepSpeed: deepspeed/runtime/comm/nccl.py",
            },
            "EPSILON": {
                "here": 1e-08,
                "authors": "1e-8, adam.py",
                "official": 1e-08,
                "source": "github.com/microsoft/DeepSpeed: deepspeed/runtime/fp16/onebit/adam.py",
            },
        },
        "checked_by": (
            "tests/unit/test_compressed_steps.py::test_momenta_travel_as_signs_with_errors_at_workers_and_servers",
        ),
    },
)
class OneBitAdam(FlatReplica):
    """Own Adam over the flat vector, in two phases."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        warmup_share: float = 0.14,
        feedback: bool = True,
        by_tensor: bool = False,
    ) -> None:
        if task.optimizer_name != "adamw":
            raise UnsupportedError(f"it is Adam; the point asks for {task.optimizer_name}")
        super().__init__(task, comm)
        self.warmup = warmup_steps(task.steps, warmup_share)
        count = self.flat.values.numel()
        self.momentum = self.register_state("momentum", torch.zeros_like(self.flat.values), kind="optimizer")
        self.variance = self.register_state("variance", torch.zeros_like(self.flat.values), kind="optimizer")
        self.bounds = self.flat.bounds if by_tensor else [(0, count)]
        self.compressed = [
            onebit.OneBit(task.problem("all_reduce", stop - start), comm, feedback=feedback)
            for start, stop in self.bounds
        ]
        # Both errors are state: a resumed run without them would lose what compression still owes.
        for place, part in enumerate(self.compressed):
            self.register_state(f"worker_error_{place}", part.worker_error)
            self.register_state(f"server_error_{place}", part.server_error)
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
        for part, (start, stop) in zip(self.compressed, self.bounds, strict=True):
            part.run(self.momentum[start:stop])
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


def cost(task: Task, *, warmup_share: float, by_tensor: bool) -> Cost:
    """Return the header's formula: rings while warming up, then compressed all-reduces."""
    full, messages = ring_cost(task.num_parameters, task.world_size)
    sizes = [p.numel() for p in task.model.parameters()] if by_tensor else [task.num_parameters]
    parts = [onebit.cost(task.problem("all_reduce", size)) for size in sizes]
    warmup = min(warmup_steps(task.steps, warmup_share), task.steps)
    rest = task.steps - warmup
    return Cost(
        sent_bytes=warmup * full + rest * sum(part.sent_bytes for part in parts),
        peak_bytes=full,
        messages=warmup * messages + rest * sum(part.messages for part in parts),
    )
