"""Every rank gets every rank's state and folds its own prefix: one step, n − 1 times the bytes.

Sun et al., "LASP-2: Rethinking Sequence Parallelism for Linear Attention and its Hybrid", arXiv 2502.07563, 2025,
section 3; a baseline of ZeCO (arXiv 2507.01004).

Algorithm: run the own chunk with a zero prefix; send its state and its decay to all other ranks; fold the states of all
earlier ranks in order; add the prefix's part to the outputs.

Cost: (n − 1) · (H·D·D + H·D) elements from each rank in n − 1 messages; one dependent step.

Differences from the paper: forward pass only; gated states, so that decays travel too; direct messages instead of the
backend's all-gather, so that bytes can be counted.
Limits: bytes and memory grow with n.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.linear_attention import apply_prefix, local_pass
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="scan-all-gather",
    family="collectives",
    implements=("linear_attention",),
    summary="every rank gets every rank's state",
    properties={"exact": True},
)
class ScanAllGather:
    """Prefix states from an all-gather. T tokens, H heads, D width."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        heads, width = problem.integer("heads"), problem.integer("head_dim")
        self.others = [r for r in range(problem.world_size) if r != problem.rank]
        # One row more than the state: the decays.
        self.gathered = problem.empty(problem.world_size, heads, width + 1, width)

    def run(
        self, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor, log_decay_THD: Tensor, out_THD: Tensor
    ) -> None:
        """Attend over the whole sequence up to each token."""
        rank = self.problem.rank
        local = local_pass(q_THD, k_THD, v_THD, log_decay_THD)
        mine = self.gathered[rank]
        # State and decay in one message: a later rank cannot fold the one without the other.
        mine[:, :-1], mine[:, -1] = local.state_HDD, local.decay_HD
        # Later ranks' states come as well and are of no use here: that is the price of one step.
        self.comm.start(
            sends=[(mine, r) for r in self.others],
            receives=[(self.gathered[r], r) for r in self.others],
        ).wait()
        prefix_HDD = torch.zeros_like(local.state_HDD)
        for earlier in self.gathered[:rank]:
            # P ← diag(α) P + S does not commute, so ranks are folded in the order of the sequence.
            prefix_HDD = prefix_HDD * earlier[:, -1].unsqueeze(-1) + earlier[:, :-1]
        apply_prefix(local, prefix_HDD, out_THD)


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    n, width = problem.world_size, problem.integer("head_dim")
    part = problem.integer("heads") * (width + 1) * width * problem.item_bytes
    return Cost(
        sent_bytes=part * (n - 1), messages=n - 1, total_bytes=part * (n - 1) * n, steps=1 if n > 1 else 0
    )
