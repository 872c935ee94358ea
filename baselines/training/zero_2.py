"""ZeRO, stage 2: gradients, too, are kept only where they are used; buckets are scattered while backward goes on.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (SC 2020), section 5.2:
buckets of gradients are reduced to their owners as soon as they are complete, and freed.

Algorithm (parameters in buckets of whole tensors, each bucket in n shares):
1. When backward has completed a bucket's gradients, a reduce-scatter leaves the mean of share r on rank r; the bucket's
   gradients are freed.
2. Rank r updates its shares of all buckets with its own part of the optimiser's state.
3. An all-gather for each bucket gives every rank all shares.

Cost of a step: 2·(n − 1)/n · 4P bytes in 2·(n − 1) messages a bucket. State: parameters 4P, gradients 4P/n, Adam 8P/n.
Memory: one bucket's gradients and its scratch at a time. With ``state: mixed``, as in ``zero-1``, state is the paper's
2P + 14P/n, and half of the bytes travel.
Limits: a bucket holds at least one whole tensor.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline import technique
from paceline.families.collectives.api import rings
from paceline.families.training.api.buckets import bucket_groups, buckets
from paceline.families.training.api.exchange import ring_cost
from paceline.families.training.api.masters import Masters, narrow_parameters, widths
from paceline.families.training.api.model import loss_and_gradients
from paceline.families.training.api.replica import Comm, Cost, Replica, Task
from paceline.families.training.api.sharded import largest_share


@technique(
    name="zero-2",
    family="training",
    implements=("data_parallel",),
    summary="optimiser state and gradients in shares, scattered bucket by bucket during backward",
    paper="zero",
    properties={"exact": True, "inexact_with": {"state": "mixed"}, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "section 5.2 by the header, not read for this card",
            "code": "github.com/microsoft/DeepSpeed: deepspeed/runtime/zero/config.py, its defaults alone",
        },
        "deviations": (
            "bfloat16 stands for float16.",
            (
                "A bucket's exchange is waited for inside backward, and not overlapped with it, which is "
                "DeepSpeed's default too (overlap_comm, off below stage 3)."
            ),
            "Buckets hold whole tensors, and are smaller, since models are.",
        ),
        "constants": {
            "bucket_bytes": {
                "here": 262144,
                "authors": "5·10⁸ elements (reduce_bucket_size), config.py",
                "official": 500000000,
                "source": "github.com/microsoft/DeepSpeed: deepspeed/runtime/zero/config.py (elements)",
                "differs": "buckets are smaller, since models are",
            },
            "state": {"here": "single", "authors": "mixed, in the paper's count of bytes"},
        },
        "checked_by": (
            "tests/unit/test_masters.py::test_mixed_state_is_the_papers",
            "tests/conformance/test_training_conformance.py::test_a_technique_conforms",
        ),
    },
)
class Zero2(Replica):
    """Scatter gradients bucket by bucket and keep one share of each."""

    own_gradients = False

    def __init__(self, task: Task, comm: Comm, *, bucket_bytes: int = 262144, state: str = "single") -> None:
        narrow_parameters(task, state)
        self.buckets = buckets(task.model, bucket_bytes, task.world_size)
        self.members = range(task.world_size)
        super().__init__(task, comm)
        for number, bucket in enumerate(self.buckets):
            for parameter in bucket.parameters:
                # All ranks run one graph, so buckets complete in one order: an exchange in a hook finds its peers.
                parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]  # torch leaves it without types
                    partial(_completed, self, number)
                )

    def make_optimizer(self) -> Optimizer:
        """Return the point's optimiser over this rank's shares, views of the buckets' vectors, or their masters."""
        shares = []
        for bucket in self.buckets:
            start, stop = bucket.bounds[self.task.rank]
            share = nn.Parameter(bucket.values[start:stop])
            # Memory of its own, unlike stage 1's view: the bucket's whole gradient is freed after its scatter.
            share.grad = torch.zeros_like(share)
            shares.append(share)
        self.masters = Masters(self, shares)
        return self.task.optimizer(self.masters.parameters)

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Run forward and backward; buckets are scattered and freed meanwhile."""
        for bucket in self.buckets:
            # Set before each backward: the counts are used up by the one before.
            bucket.missing = len(bucket.parameters)
        return loss_and_gradients(self.model, sequences_BS)

    def _ready(self, number: int) -> None:
        """Count a gradient down; scatter the bucket with the last one and keep the mean of this rank's share."""
        bucket = self.buckets[number]
        bucket.missing -= 1
        if bucket.missing:
            return
        gradients = bucket.take_gradients()
        chunks = [gradients[a:b] for a, b in bucket.bounds]
        longest = max(b - a for a, b in bucket.bounds)
        # Made here and freed with the bucket: held between steps it would be scratch, of which cost states none.
        scratch = gradients.new_empty(2 * longest if self.comm.world_size > 1 else 0)
        rings.finish(rings.reduce_scatter(self.comm, chunks, self.members, self.comm.rank, scratch))
        share = self.owned[number].grad
        assert share is not None
        torch.div(chunks[self.comm.rank], self.comm.world_size, out=share)

    def update(self, step: int) -> None:
        """Apply the gradients of this rank's shares."""
        self.masters.step(self.optimizer)

    def exchange_parameters(self, step: int) -> None:
        """Gather all shares of every bucket."""
        for bucket in self.buckets:
            rings.finish(rings.all_gather(self.comm, bucket.chunks, self.members, self.comm.rank))


def _completed(replica: Zero2, number: int, parameter: Tensor) -> None:
    replica._ready(number)


def cost(task: Task, *, bucket_bytes: int, state: str) -> Cost:
    """Return the header's formula, with the exact sizes of buckets and shares."""
    sizes = [sum(p.numel() for p in group) for group in bucket_groups(task.model, bucket_bytes)]
    width, master = widths(state)
    found = [ring_cost(size, task.world_size, width) for size in sizes]
    sent, messages = sum(f[0] for f in found), sum(f[1] for f in found)
    owned = largest_share(sizes, task.world_size)
    return Cost(
        sent_bytes=task.steps * sent,
        peak_bytes=sent,
        messages=task.steps * messages,
        # Weights whole; gradients, masters and moments of the owned shares: P_os+g (section 5.2).
        state_bytes=width * sum(sizes) + (width + master + task.moment_bytes) * owned,
        scratch_bytes=0,
    )
