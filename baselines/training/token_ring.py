"""TokenRing: queries go one way around the ring, what they see goes straight back; keys and values stay.

Wang et al., "TokenRing: An Efficient Parallelism Framework for Infinite-Context LLMs via Bidirectional Communication",
arXiv 2412.20501, 2024, section 3.2 and its zigzag partition; backward by blocks after FlashAttention-2 (Dao, 2023,
algorithm 2).

Algorithm (n ranks with t of T positions each, the r-th of 2n runs and the r-th from the end):
1. Attend to the own keys with the own queries; meanwhile pass the queries to the next rank.
2. For n − 1 steps attend with the queries that have arrived, while they travel on; their outputs and log-sum-exps go
   straight to the owner, against the direction of the ring. The owner merges them.
3. Backward: queries, gradients of outputs, log-sum-exps and the rows' sums of output times gradient go around likewise,
   gradients of queries come back. Gradients of keys and values add up where these lie.
With ``direct_last`` rows skip their last hop: the owner sends them to rank r + n − 1 = r − 1 itself.

Cost of a layer and sequence, in elements (H heads of queries, of width K): (n − 1)·t·H·K to the next rank and
(n − 1)·t·H·(K + 1) back; backward (n − 1)·t·H·(2K + 2) and (n − 1)·t·H·K. The last answer goes to the next rank, too:
the busiest directed pair carries t·H·((3n − 1)·K + 2n − 1), against t·G·K·(6n − 4) of ring attention with G heads of
keys; with ``direct_last`` t·H·((3n − 4)·K + 2n − 3) from three ranks on.
Memory: three blocks of rows that travel, n − 1 answers.

Limits: with fewer heads of keys than of queries ring attention has less to send; two ranks have one neighbour only.

Shape suffixes: B sequences, H heads of queries, G of keys, t positions, M = B·H, N = B·G, X width of rows that travel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api import rings
from paceline.families.training.api.model import heads_first, positions_first
from paceline.families.training.api.replica import Comm, Cost, Task
from paceline.families.training.api.sequence.blocks import attend_to, gradients, merge
from paceline.families.training.api.sequence.layout import zigzag
from paceline.families.training.api.sequence.replica import SequenceReplica, counts_of, row_of, sequence_cost


@technique(
    name="token-ring",
    family="training",
    implements=("sequence_parallel",),
    summary="queries go one way around a ring, partial results the other",
    paper="token-ring",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "section 3.2 by the header, not read for this card",
            "code": "github.com/ACA-Lab-SJTU/token-ring: casual_test/token_ring/zigzag_token_ring.py",
        },
        "deviations": (
            "Backward is ours, since the authors' public function is for inference.",
            "``direct_last`` is ours.",
            (
                "All rows travel all the way; the authors send the later half alone once a rank's keys are ahead "
                "of the earlier one."
            ),
            (
                "A result leaves as soon as it is there, as one message with its log-sum-exp; the authors' leaves "
                "a step later, in two."
            ),
        ),
        "constants": {
            "direct_last": {"here": False, "authors": "their code has no such choice"},
        },
        "checked_by": (
            "tests/unit/test_sequence.py::test_gradients_and_bytes_are_those_of_one_process_and_of_the_formula",
            "tests/unit/test_sequence.py::test_token_rings_busiest_pair_carries_what_its_header_says",
        ),
    },
)
class TokenRing(SequenceReplica):
    """Rotates queries and returns what they see to their owners."""

    def __init__(self, task: Task, comm: Comm, *, direct_last: bool = False) -> None:
        super().__init__(task, comm, zigzag)
        self.direct_last = direct_last

    def attend(self, q_BHtK: Tensor, k_BGtK: Tensor, v_BGtK: Tensor) -> Tensor:
        """Let queries go around."""
        found_tMK: Tensor = _Visit.apply(self, *map(positions_first, (q_BHtK, k_BGtK, v_BGtK)))  # type: ignore[no-untyped-call]  # torch leaves it without types
        return heads_first(found_tMK, q_BHtK.shape[0])

    def circulate(
        self, own_tMX: Tensor, answer: Callable[[int, Tensor], Tensor], width: int
    ) -> Iterator[Tensor]:
        """Let rows visit all ranks; yield the answers to the own ones, (t, M, width), those of the own rank first.

        Args:
            own_tMX: This rank's rows.
            answer: Given an owner and its rows, returns what it gets.
            width: Of answers.
        """
        rank, size = self.comm.rank, self.comm.world_size
        heads = own_tMX.shape[1]
        # A buffer for each answer: all n − 1 may be on their way at once, since no hop waits for one.
        replies = [own_tMX.new_empty(self.counts[rank], heads, width) for _ in range(size - 1)]
        own: list[Tensor] = []

        def landing(step: int) -> Tensor:
            return own_tMX.new_empty(self.counts[(rank - step - 1) % size], *own_tMX.shape[1:])

        def reply(step: int, held_tMX: Tensor) -> Tensor:
            found = answer((rank - step) % size, held_tMX)
            # Rows at home are answered without a message; visit() drops this answer, so it is kept here.
            if step == 0:
                own.append(found)
            return found

        returned = rings.visit(self.comm, own_tMX, landing, reply, replies, direct_last=self.direct_last)
        yield own[0]
        for transfer, arrived in zip(returned, replies, strict=True):
            transfer.wait()
            yield arrived


class _Visit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ring: TokenRing, q_tMK: Tensor, k_tNK: Tensor, v_tNK: Tensor) -> Tensor:
        k_runs, width = ring.runs[ring.comm.rank], q_tMK.shape[-1]

        def answer(owner: int, visiting_tMK: Tensor) -> Tensor:
            out_tMK, lse_tM = attend_to(visiting_tMK, k_tNK, v_tNK, ring.runs[owner], k_runs)
            # One message for output and log-sum-exp: apart, each answer would pay the latency twice.
            return torch.cat([out_tMK, lse_tM.unsqueeze(-1)], dim=-1)

        answers = ring.circulate(q_tMK.contiguous(), answer, width + 1)
        first = next(answers)
        # The own rank's part first: every query sees itself there, so merging starts from a finite log-sum-exp.
        out_tMK, lse_tM = first[..., :width].contiguous(), first[..., width].contiguous()
        for part in answers:
            merge(out_tMK, lse_tM, part[..., :width], part[..., width])
        ctx.ring = ring
        ctx.save_for_backward(q_tMK, k_tNK, v_tNK, out_tMK, lse_tM)
        return out_tMK

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        (d_out_tMK,) = outer
        ring: TokenRing = ctx.ring
        q_tMK, k_tNK, v_tNK, out_tMK, lse_tM = ctx.saved_tensors
        k_runs, width = ring.runs[ring.comm.rank], q_tMK.shape[-1]
        delta_tM = (d_out_tMK * out_tMK).sum(dim=-1)
        d_k_tNK, d_v_tNK = torch.zeros_like(k_tNK), torch.zeros_like(v_tNK)

        def answer(owner: int, visiting_tMX: Tensor) -> Tensor:
            q_tMK, d_out_tMK, sums_tM2 = torch.split(visiting_tMX, [width, width, 2], dim=-1)
            lse_tM, delta_tM = sums_tM2.unbind(dim=-1)
            d_q_tMK, d_k, d_v = gradients(
                q_tMK, k_tNK, v_tNK, d_out_tMK, lse_tM, delta_tM, ring.runs[owner], k_runs
            )
            # Keys never move: gradients add up here, in the order of visits, which is the same in every run.
            d_k_tNK.add_(d_k)
            d_v_tNK.add_(d_v)
            return d_q_tMK.contiguous()

        # What backward by blocks needs of a row beside q and dO (FlashAttention-2, algorithm 2): two numbers.
        sums_tM2 = torch.stack([lse_tM, delta_tM], dim=-1)
        own_tMX = torch.cat([q_tMK, d_out_tMK, sums_tM2], dim=-1)
        d_q_tMK = torch.zeros_like(q_tMK)
        for part in ring.circulate(own_tMX, answer, width):
            d_q_tMK += part
        return None, d_q_tMK, d_k_tNK, d_v_tNK


def cost(task: Task, *, direct_last: bool) -> Cost:
    """Return the header's formula with the exact positions of each rank."""
    counts, row = counts_of(task, zigzag), row_of(task)
    n, total = len(counts), sum(counts)

    def attention(rank: int) -> tuple[float, int]:
        # A rank answers every other rank's rows, and passes on all rows but those that end their visit at it.
        answers = total - counts[rank]
        queries = total - counts[(rank + 1) % n]
        if direct_last:
            # In the last step it sends its own rows backward instead of passing on those of rank + 2.
            queries += counts[rank] - counts[(rank + 2) % n]
        # There: q forward; q, dO and two numbers backward. Back: output and log-sum-exp forward; dq backward.
        there, back = 3 * row.queries_bytes + 2 * row.sums_bytes, 2 * row.queries_bytes + row.sums_bytes
        return queries * there + answers * back, 4 * (n - 1)

    return sequence_cost(task, attention)
