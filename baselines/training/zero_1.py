"""ZeRO, stage 1: every rank keeps the optimiser's state of its own share of the parameters.

Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (SC 2020), sections 5.1 and
7.2.1 (communication).

Algorithm (parameters in n shares):
1. A reduce-scatter leaves the mean gradient of share r on rank r.
2. Rank r updates its share with its own part of the optimiser's state.
3. An all-gather gives every rank all shares.

Cost of a step: 2·(n − 1)/n · 4P bytes in 2·(n − 1) messages, that of an all-reduce. State: parameters 4P, gradients 4P,
Adam 8P/n. Memory: scratch of 2/n · 4P. With ``state: mixed`` parameters and gradients have two bytes and shares a
master in float32, as the paper counts: 4P + 12P/n, and half of the bytes on the wire.
Limits: gradients are still whole (stage 2 drops them).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.optim import Optimizer

from paceline import technique
from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.exchange import ring_cost
from paceline.families.training.api.masters import Masters, narrow_parameters, widths
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task
from paceline.families.training.api.sharded import largest_share


@technique(
    name="zero-1",
    family="training",
    implements=("data_parallel",),
    summary="optimiser state in shares: reduce-scatter, own update, all-gather",
    paper="zero",
    properties={"exact": True, "inexact_with": {"state": "mixed"}, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "sections 5.1 and 7.2.1 by the header, not read for this card",
            "code": "github.com/microsoft/DeepSpeed: deepspeed/runtime/zero/config.py, its defaults alone",
        },
        "deviations": (
            (
                "bfloat16 stands for the paper's float16, so that no loss is scaled; masters begin as the rounded "
                "weights."
            ),
            "Rings are our own, since Gloo's reduce-scatter moves an all-reduce's bytes.",
            "One vector is scattered and gathered; DeepSpeed works in buckets of 5·10⁸ elements.",
        ),
        "constants": {
            "state": {"here": "single", "authors": "mixed, in the paper's count of bytes"},
        },
        "checked_by": (
            "tests/unit/test_masters.py::test_mixed_state_is_the_papers",
            "tests/conformance/test_training_conformance.py::test_a_technique_conforms",
        ),
    },
)
class Zero1(FlatReplica):
    """Update one share and gather the others."""

    def __init__(self, task: Task, comm: Comm, *, state: str = "single") -> None:
        # Before the parameters are laid out in one vector, whose dtype is theirs.
        narrow_parameters(task, state)
        # Before super().__init__, which makes the optimiser over this rank's share.
        self.bounds = chunk_bounds(task.num_parameters, task.world_size)
        super().__init__(task, comm)
        self.members = range(task.world_size)
        self.values = [self.flat.values[a:b] for a, b in self.bounds]
        self.gradients = [self.flat.gradients[a:b] for a, b in self.bounds]
        longest = max(b - a for a, b in self.bounds)
        scratch = 2 * longest if task.world_size > 1 else 0
        self.scratch = torch.empty(scratch, dtype=self.flat.values.dtype, device=task.device)

    def make_optimizer(self) -> Optimizer:
        """Return the point's optimiser over this rank's share, a view of the whole vector, or over its master."""
        start, stop = self.bounds[self.task.rank]
        self.share = nn.Parameter(self.flat.values[start:stop])
        # A view: the reduce-scatter leaves the sum where the optimiser reads it, without a copy.
        self.share.grad = self.flat.gradients[start:stop]
        self.masters = Masters(self, [self.share])
        return self.task.optimizer(self.masters.parameters)

    def exchange_gradients(self, step: int) -> None:
        """Leave the mean gradient of this rank's share in it."""
        rings.finish(
            rings.reduce_scatter(self.comm, self.gradients, self.members, self.comm.rank, self.scratch)
        )
        # Only the own share is a sum; the other chunks hold partial sums, which nobody reads.
        self.gradients[self.comm.rank].div_(self.comm.world_size)

    def update(self, step: int) -> None:
        """Apply the gradients of this rank's share."""
        self.masters.step(self.optimizer)

    def exchange_parameters(self, step: int) -> None:
        """Gather all shares."""
        # In place over the views of the flat vector: the model has the new weights when the ring ends.
        rings.finish(rings.all_gather(self.comm, self.values, self.members, self.comm.rank))


def cost(task: Task, *, state: str) -> Cost:
    """Return the header's formula."""
    count, n, (width, master) = task.num_parameters, task.world_size, widths(state)
    sent, messages = ring_cost(count, n, width)
    longest = largest_share([count], n)
    return Cost(
        sent_bytes=task.steps * sent,
        peak_bytes=sent,
        messages=task.steps * messages,
        # Weights and gradients whole, masters and moments for one share: ZeRO's P_os (section 5.1).
        state_bytes=2 * width * count + (master + task.moment_bytes) * longest,
        scratch_bytes=2 * width * longest if n > 1 else 0,
    )
