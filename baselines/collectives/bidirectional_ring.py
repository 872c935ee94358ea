"""TokenRing: queries go one way around the ring while finished partial results go back to their owners.

Wang et al., "TokenRing: An Efficient Parallelism Framework for Infinite-Context LLMs via Bidirectional Communication",
arXiv 2412.20501, 2024, section 3.2.

Algorithm (n ranks, T tokens each; keys and values stay where they are):
1. Attend to the own keys with the own queries; meanwhile pass the queries to the next rank.
2. For n − 1 steps attend with the queries that have arrived, while they travel on; send the partial output with its
   log-sum-exp straight to the queries' owner, against the direction of the ring.
3. Merge the partial results that arrive.

Cost: (n − 1)·T·G·D elements of queries to the next rank and (n − 1)·T·G·(D + 1) of results to the owners, G query heads
of width D. The busiest directed pair carries the queries and one result: n·T·G·D + T·G, against 2(n − 1)·T·H·D of ring
attention with H key/value heads.

Differences from the paper: no causal mask and so no zigzag order; the result of the last step shares its pair of ranks
with the queries, since on a full mesh the owner is then the next rank.
Limits: with grouped queries, H < G, ring attention sends less.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.problem import Comm, Cost, Problem
from paceline.families.collectives.sequence_attention import attend, merge


@technique(
    name="bidirectional-ring",
    family="collectives",
    implements=("sequence_attention",),
    summary="queries go one way, partial results the other",
    paper="token-ring",
    properties={"exact": True},
)
class BidirectionalRing:
    """TokenRing's transport. T tokens, G query heads, H key/value heads, D width."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        tokens, heads, width = (problem.integer(k) for k in ("tokens", "heads", "head_dim"))
        self.held, self.coming = problem.empty(tokens, heads, width), problem.empty(tokens, heads, width)
        # A partial result travels as one message: the output, and the log-sum-exp as one column more.
        self.outgoing = problem.empty(tokens, heads, width + 1)
        self.returned = problem.empty(tokens, heads, width + 1)

    def run(self, q_TGD: Tensor, k_THD: Tensor, v_THD: Tensor, out_TGD: Tensor, lse_TG: Tensor) -> None:
        """Attend to the keys of all ranks."""
        rank, size = self.problem.rank, self.problem.world_size
        held, coming = self.held, self.coming
        held.copy_(q_TGD)
        for step in range(size):
            queries = None
            if step < size - 1:
                sends, receives = [(held, (rank + 1) % size)], [(coming, (rank - 1) % size)]
                queries = self.comm.start(sends=sends, receives=receives)
            part_TGD, part_lse_TG = attend(held, k_THD, v_THD)
            if step == 0:
                out_TGD.copy_(part_TGD)
                lse_TG.copy_(part_lse_TG)
            else:
                self.outgoing[..., :-1], self.outgoing[..., -1] = part_TGD, part_lse_TG
                owner, helper = (rank - step) % size, (rank + step) % size
                self.comm.exchange(self.outgoing, owner, self.returned, helper)
                merge(out_TGD, lse_TG, self.returned[..., :-1], self.returned[..., -1])
            if queries is not None:
                queries.wait()
                held, coming = coming, held


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    n, item = problem.world_size, problem.item_bytes
    rows = problem.integer("tokens") * problem.integer("heads")
    width = problem.integer("head_dim")
    sent = (n - 1) * rows * (2 * width + 1) * item
    return Cost(sent_bytes=sent, messages=2 * (n - 1), total_bytes=sent * n, steps=2 * (n - 1))
