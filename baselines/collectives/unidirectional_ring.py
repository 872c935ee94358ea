"""Ring attention: keys and values rotate in one direction, queries stay.

Liu, Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context", arXiv 2310.01889, 2023,
section 3; the baseline of TokenRing (arXiv 2412.20501).

Algorithm (n ranks, T tokens each): for n steps attend to the keys and values at hand, and meanwhile pass them to the
next rank and receive the previous rank's; merge the partial results by their log-sum-exps.

Cost: (n − 1) · 2·T·H·D elements from each rank to the next one, H key/value heads of width D; n − 1 dependent steps.
The opposite direction of every link is idle.

Difference from the paper: no causal mask, forward pass only.
Limits: with few key/value heads (grouped queries) this is hard to beat, since K and V are then small.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem
from paceline.families.collectives.api.sequence_attention import attend, merge


@technique(
    name="unidirectional-ring",
    family="collectives",
    implements=("sequence_attention",),
    summary="keys and values rotate one way around a ring",
    properties={"exact": True},
)
class UnidirectionalRing:
    """Ring attention. T tokens, G query heads, H key/value heads, D width."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        shape = (2, problem.integer("tokens"), problem.integer("kv_heads"), problem.integer("head_dim"))
        # One tensor for both, so that a step is one message and pays one latency.
        self.held, self.coming = problem.empty(*shape), problem.empty(*shape)  # keys, then values

    def run(self, q_TGD: Tensor, k_THD: Tensor, v_THD: Tensor, out_TGD: Tensor, lse_TG: Tensor) -> None:
        """Attend to the keys of all ranks."""
        rank, size = self.problem.rank, self.problem.world_size
        held, coming = self.held, self.coming
        held[0], held[1] = k_THD, v_THD
        for step in range(size):
            transfer = None
            if step < size - 1:
                sends, receives = [(held, (rank + 1) % size)], [(coming, (rank - 1) % size)]
                # Started before the attention and waited for after it: the block travels while it is being used.
                transfer = self.comm.start(sends=sends, receives=receives)
            part_TGD, part_lse_TG = attend(q_TGD, held[0], held[1])
            if step == 0:
                out_TGD.copy_(part_TGD)
                lse_TG.copy_(part_lse_TG)
            else:
                merge(out_TGD, lse_TG, part_TGD, part_lse_TG)
            if transfer is not None:
                transfer.wait()
                # Only after the wait: until then ``held`` is still being sent.
                held, coming = coming, held


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    n = problem.world_size
    pair = 2 * problem.integer("tokens") * problem.integer("kv_heads") * problem.integer("head_dim")
    sent = (n - 1) * pair * problem.item_bytes
    return Cost(sent_bytes=sent, messages=n - 1, total_bytes=sent * n, steps=n - 1)
