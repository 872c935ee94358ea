"""TokenRing: queries go one way around the ring while finished partial results go back to their owners.

Wang et al., "TokenRing: An Efficient Parallelism Framework for Infinite-Context LLMs via Bidirectional Communication",
arXiv 2412.20501, 2024, section 3.2.

Algorithm (n ranks, T tokens each; keys and values stay where they are):
1. Attend to the own keys with the own queries; meanwhile pass the queries to the next rank.
2. For n − 1 steps attend with the queries that have arrived, while they travel on; send the partial output with its
   log-sum-exp straight to the queries' owner, against the direction of the ring, during the next step.
3. Merge the partial results that have arrived.
With ``direct_last`` the queries skip their last hop: rank r + n − 1 is rank r − 1, so the owner sends its queries there
itself, against the direction of the others.

Cost: (n − 1)·T·G·D elements of queries to the next rank and (n − 1)·T·G·(D + 1) of results to the owners, G query heads
of width D. The busiest directed pair carries the queries and one result: n·T·G·D + T·G, against 2(n − 1)·T·H·D of ring
attention with H key/value heads; with ``direct_last`` (n − 1)·T·G·D + T·G from three ranks on. Memory: 2(n − 1) partial
results and two blocks of queries.

Limits: with grouped queries, H < G, ring attention sends less; two ranks have one neighbour only, and nothing to gain.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import Comm, Cost, Problem
from paceline.families.collectives.api.sequence_attention import attend, merge


@technique(
    name="bidirectional-ring",
    family="collectives",
    implements=("sequence_attention",),
    summary="queries go one way, partial results the other",
    paper="token-ring",
    properties={"exact": True},
    fidelity={
        "source": {
            "read": "code",
            "paper": "section 3.2 by the header, not read for this card",
            "code": "github.com/ACA-Lab-SJTU/token-ring: README.md, casual_test/token_ring/zigzag_token_ring.py",
        },
        "deviations": (
            (
                "There is no causal mask and so no zigzag order; the authors' public code has both, in "
                "``token-ring`` of training too."
            ),
            (
                "The result of the last step shares its pair of ranks with the queries, since on a full mesh the "
                "owner is then the next rank."
            ),
            "``direct_last`` is not in the paper.",
        ),
        "constants": {
            "direct_last": {"here": False, "authors": "their code has no such choice"},
        },
        "checked_by": ("tests/conformance/test_conformance.py::test_a_technique_conforms",),
    },
)
class BidirectionalRing:
    """Rotates queries and returns partial outputs to their owners."""

    def __init__(self, problem: Problem, comm: Comm, *, direct_last: bool = False) -> None:
        self.problem = problem
        self.comm = comm
        self.direct_last = direct_last
        tokens, heads = problem.integer("tokens"), problem.integer("heads")
        width = problem.integer("head_dim")
        self.rows = tokens * heads
        # Two in turn: one block is attended to and sent on while the next one lands.
        self.queries_TGD = [problem.empty(tokens, heads, width) for _ in range(2)]
        parts = max(problem.world_size - 1, 0)
        # A buffer for each step: an answer may still be on its way when the next one is written.
        self.outgoing = [problem.empty(self.rows * (width + 1)) for _ in range(parts)]
        self.incoming = [problem.empty(self.rows * (width + 1)) for _ in range(parts)]
        """Partial results of step s at index s − 1: first the output, then the log-sum-exp."""

    def run(self, q_TGD: Tensor, k_THD: Tensor, v_THD: Tensor, out_TGD: Tensor, lse_TG: Tensor) -> None:
        """Attend to the keys of all ranks."""

        def answer(step: int, held_TGD: Tensor) -> Tensor:
            part_TGD, part_lse_TG = attend(held_TGD, k_THD, v_THD)
            if step == 0:
                out_TGD.copy_(part_TGD)
                lse_TG.copy_(part_lse_TG)
                return out_TGD
            reply_TGD, reply_lse_TG = self._split(self.outgoing[step - 1], q_TGD)
            reply_TGD.copy_(part_TGD)
            reply_lse_TG.copy_(part_lse_TG)
            return self.outgoing[step - 1]

        # Output and log-sum-exp travel in one message: an answer costs one latency.
        returned = rings.visit(
            self.comm,
            q_TGD,
            lambda step: self.queries_TGD[step % 2],
            answer,
            self.incoming,
            direct_last=self.direct_last,
        )
        for transfer, part in zip(returned, self.incoming, strict=True):
            transfer.wait()
            # In the order of steps, whichever arrives first: merging rounds, and calls must repeat bit by bit.
            merge(out_TGD, lse_TG, *self._split(part, q_TGD))

    def _split(self, part: Tensor, like_TGD: Tensor) -> tuple[Tensor, Tensor]:
        """View a partial result as output and log-sum-exp."""
        size = like_TGD.numel()
        return part[:size].view_as(like_TGD), part[size:].view(like_TGD.shape[:2])


def cost(problem: Problem, *, direct_last: bool) -> Cost:
    """Return the header's formula; the longest chain is the way of the queries and one answer."""
    hops = problem.world_size - 1
    rows = problem.integer("tokens") * problem.integer("heads")
    sent = hops * rows * (2 * problem.integer("head_dim") + 1) * problem.item_bytes
    # The last hop is replaced by a direct message, which starts at once and hangs on nothing.
    chain = max(hops - 1, 1) if direct_last else hops
    return Cost(
        sent_bytes=sent,
        messages=2 * hops,
        total_bytes=sent * problem.world_size,
        steps=chain + 1 if hops else 0,
    )
