"""All-scan: the running state passes from rank to rank in blocks, each rank working on one while the next travels.

Chou et al., "ZeCO: Zero Communication Overhead Sequence Parallelism for Linear Attention", arXiv 2507.01004, 2025,
section 3.2 (All-Scan) and algorithm 1.

Algorithm (n ranks hold consecutive chunks of the sequence; H heads of width D; the state is H·D·D numbers):
1. Ask for all blocks of the state that the previous rank will send, then run the own chunk with a zero prefix.
2. As each block arrives, decay it, add the own contribution, and send it on to the next rank.
3. Once the whole prefix state is there, add its part to the chunk's outputs.
Blocks are cut along the key dimension, whose rows of the state do not depend on each other.

Cost: H·D·D elements from each rank but the last, in ``blocks`` messages, whatever the sequence length and n;
completion after n − 1 + (blocks − 1) block times instead of (n − 1) · blocks.

Limits: the last rank still waits for n − 1 hops.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.linear_attention import apply_prefix, local_pass
from paceline.families.collectives.api.problem import Comm, Cost, Problem, chunk_bounds
from paceline.families.collectives.api.scans import BlockScan


@technique(
    name="all-scan",
    family="collectives",
    implements=("linear_attention",),
    summary="the state passes from rank to rank in blocks, pipelined",
    paper="zeco",
    properties={"exact": True},
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "section 3.2 and algorithm 1 by the header, not read for this card",
            "code": "none found",
        },
        "deviations": (
            (
                "Messages go from point to point in a process group, where the paper puts them one-sidedly "
                "between GPUs."
            ),
            "The own chunk's outputs are computed in one piece before the first block is waited for.",
        ),
        "constants": {
            "blocks": {"here": 4, "authors": "not public"},
        },
        "checked_by": ("tests/conformance/test_conformance.py::test_a_technique_conforms",),
    },
)
class AllScan:
    """Pipelined prefix scan of the state. T tokens, H heads, D width."""

    def __init__(self, problem: Problem, comm: Comm, *, blocks: int = 4) -> None:
        self.problem = problem
        self.comm = comm
        heads, width = problem.integer("heads"), problem.integer("head_dim")
        # More blocks than rows leaves empty ones, which would be no messages.
        self.bounds = [(a, b) for a, b in chunk_bounds(width, blocks) if b > a]
        # Rank 0 receives nothing and needs a zero prefix; other ranks overwrite every row.
        self.prefix_HDD = torch.zeros(heads, width, width, dtype=problem.dtype, device=problem.device)
        self.arriving = [problem.empty(heads, b - a, width) for a, b in self.bounds]

    def run(
        self, q_THD: Tensor, k_THD: Tensor, v_THD: Tensor, log_decay_THD: Tensor, out_THD: Tensor
    ) -> None:
        """Attend over the whole sequence up to each token."""
        rank, last = self.problem.rank, self.problem.world_size - 1
        before, after = rank - 1 if rank > 0 else None, rank + 1 if rank < last else None
        # Posts the receives: before the own chunk's work, so that blocks arrive during it.
        scan = BlockScan(self.comm, self.bounds, self.arriving, before=before, after=after)
        local = local_pass(q_THD, k_THD, v_THD, log_decay_THD)
        scan.run(local.state_HDD, local.decay_HD, self.prefix_HDD)
        apply_prefix(local, self.prefix_HDD, out_THD)
        # Last: the blocks leave while the outputs are being computed.
        scan.finish()


def cost(problem: Problem, *, blocks: int) -> Cost:
    """Return the closed forms of the header."""
    n, width = problem.world_size, problem.integer("head_dim")
    state = problem.integer("heads") * width * width * problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    parts = min(blocks, width)
    return Cost(sent_bytes=state, messages=parts, total_bytes=state * (n - 1), steps=n - 1 + parts - 1)
