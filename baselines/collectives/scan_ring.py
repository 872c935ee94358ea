"""The state passes from rank to rank as a whole: the serial scan that pipelining is measured against.

Sun et al., "Linear Attention Sequence Parallelism", arXiv 2404.02882, 2024 (LASP), section 3.2; the baseline of
ZeCO (arXiv 2507.01004).

Algorithm: run the own chunk with a zero prefix; wait for the previous rank's state; decay it, add the own contribution,
send it on; then add the prefix's part to the outputs.

Cost: H·D·D elements from each rank but the last in one message; n − 1 dependent steps of the whole state.

Difference from the paper: forward pass only.
Limits: rank r waits for r whole states.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.linear_attention import advance, apply_prefix, local_pass
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="scan-ring",
    family="collectives",
    implements=("linear_attention",),
    summary="the whole state passes from rank to rank",
    properties={"exact": True},
)
class ScanRing:
    """Serial prefix scan of the state. T tokens, H heads, D width."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        heads, width = problem.integer("heads"), problem.integer("head_dim")
        # Rank 0 receives nothing and needs a zero prefix.
        self.prefix_HDD = torch.zeros(heads, width, width, dtype=problem.dtype, device=problem.device)

    def run(
        self, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor, log_decay_THD: Tensor, out_THD: Tensor
    ) -> None:
        """Attend over the whole sequence up to each token."""
        rank, last = self.problem.rank, self.problem.world_size - 1
        local = local_pass(q_THD, k_THD, v_THD, log_decay_THD)
        if rank > 0:
            self.comm.receive(self.prefix_HDD, rank - 1)
        if rank < last:
            # Before the own outputs: all later ranks wait for this. The chain starts at a rank
            # that only sends, so none deadlocks.
            self.comm.send(advance(local, self.prefix_HDD), rank + 1)
        apply_prefix(local, self.prefix_HDD, out_THD)


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    n, width = problem.world_size, problem.integer("head_dim")
    state = problem.integer("heads") * width * width * problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    return Cost(sent_bytes=state, messages=1, total_bytes=state * (n - 1), steps=n - 1)
