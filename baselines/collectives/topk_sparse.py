"""Sparse all-reduce: the few largest elements of each chunk in 14 bits each, the rest kept for later calls.

Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo" (2025): chunk-wise top-k of an error-feedback
accumulator, 2-bit values.

Algorithm (n ranks):
1. Accumulate: add the call's values to ``decay`` times what earlier calls left unsent.
2. Select the k largest magnitudes of each chunk of 4096 elements.
3. Send a 12-bit index and a 2-bit code for each: the sign, and which of the chunk's two levels is meant.
4. Subtract what the codes stand for from the accumulator.
5. Every rank adds up the messages of all ranks in rank order, its own included: all ranks end with the same bits.

Cost: (n−1)(14 k/8 + 8) bytes sent by each rank for each chunk of 4096 elements, in n−1 messages; one dependent step.
With k = 64 (1.6 % density) that is (n−1) · S/137. Memory: S in fp32 for the accumulator, S for the sum, n messages.

Limits: traffic grows with n; an element waits about 4096/k calls for its turn, so one call carries little of a dense
buffer (on Gaussian inputs about 0.94 of the norm is missing). A much smaller k converges too slowly for the gate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.codecs import decode_top_k, encode_top_k, top_k_bytes
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="topk-sparse",
    family="collectives",
    implements=("all_reduce",),
    summary="chunk-wise top-k with 12-bit indices and 2-bit values, error feedback",
    paper="sparseloco",
    requires={"dtypes": ("float32", "bfloat16", "float16", "float64")},
    properties={
        "exact": False,
        "error": "feedback",
        # One ±1 in each chunk: it alone is at the upper level, which is then exactly 1; the lower level is 0.
        "lossless_on": ("shared-spike",),
        # The gate looks first after an eighth of these, 64 calls: as long as an element waits for its turn (4096/k).
        "convergence_calls": 512,
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "chunk-wise selection by the header, not read for this card",
            "code": (
                "github.com/tplr-ai/templar (the authors' network): src/tplr/compress.py, src/tplr/neurons.py, "
                "hparams/hparams.json"
            ),
        },
        "deviations": (
            "The sum is formed and not the mean, as the operation asks.",
            (
                "The accumulator does not decay by default: only then does the mean over calls reach the true "
                "sum, as the gate demands."
            ),
            (
                "Chunks are runs of 4096 elements; the authors' are tiles of 64 × 64 of each tensor, smaller "
                "where a side does not divide."
            ),
            (
                "A chunk has two levels and signs; the authors quantise a tensor's chosen values into four "
                "buckets over six standard deviations, with each bucket's mean."
            ),
            (
                "All that was sent for an element is added up; the authors' code takes the mean over the workers "
                "that sent it, and clips each worker's values to the median of their norms."
            ),
        ),
        "constants": {
            "k": {
                "here": 64,
                "authors": "64, hparams.json",
                "official": 64,
                "source": "github.com/tplr-ai/templar: hparams/hparams.json",
            },
            "decay": {
                "here": 1.0,
                "authors": "0.95, hparams.json",
                "official": 0.95,
                "source": "github.com/tplr-ai/templar: hparams/hparams.json",
                "differs": "only without decay does the mean over calls reach the true sum, as the gate demands",
            },
        },
        "checked_by": (
            "tests/unit/test_codecs.py::test_top_k_sends_each_chunks_largest_with_their_signs",
            "tests/unit/test_codecs.py::test_the_round_trip_rejects_wrong_index_codecs",
            "tests/unit/test_lossy_costs.py::test_formulas_are_exact_and_ranks_agree_at_small_and_odd_counts",
        ),
    },
)
class TopKSparse:
    """All-gather of sparse messages, then a local sum."""

    def __init__(
        self,
        problem: Problem,
        comm: Comm,
        bits: int = 2,
        senders: bool = False,
        *,
        k: int = 64,
        decay: float = 1.0,
    ) -> None:
        self.problem = problem
        self.comm = comm
        self.k = k
        self.decay = decay
        self.bits = bits
        # A mean over those that sent an element, for training: the operation asks for sums.
        self.senders = problem.empty(problem.count, dtype=torch.float32) if senders else None
        size = top_k_bytes(problem.count, k, bits)
        self.messages = [problem.empty(size, dtype=torch.uint8) for _ in range(problem.world_size)]
        # Float32 whatever the dtype: in a 16-bit accumulator small values would vanish beside large unsent ones.
        self.unsent = problem.empty(problem.count, dtype=torch.float32)
        self.total = problem.empty(problem.count, dtype=torch.float32)
        self.reset()

    def reset(self) -> None:
        """Forget what earlier calls left unsent."""
        self.unsent.zero_()

    def run(self, *buffers: Tensor) -> None:
        """Sum ``buffers[0]`` over ranks in place."""
        (buffer,) = buffers
        rank, size = self.problem.rank, self.problem.world_size
        if size == 1:
            return
        own = self.messages[rank]
        with self.comm.span("compress"):
            self.unsent.mul_(self.decay).add_(buffer)
            encode_top_k(self.unsent, own, self.k, self.bits)
            positions, values = decode_top_k(own, self.problem.count, self.k, self.bits)
            # What was decoded is subtracted, not what was chosen: the error of the 2-bit codes
            # is kept for later calls as well.
            self.unsent.index_add_(0, positions, values, alpha=-1)
        others = [(rank + shift) % size for shift in range(1, size)]
        self.comm.start(
            sends=[(own, peer) for peer in others],
            receives=[(self.messages[peer], peer) for peer in others],
        ).wait()
        with self.comm.span("decompress"):
            self.total.zero_()
            if self.senders is not None:
                self.senders.zero_()
            # Rank order, the own message decoded like all others: every rank adds the same numbers in the same order.
            for message in self.messages:
                positions, values = decode_top_k(message, self.problem.count, self.k, self.bits)
                self.total.index_add_(0, positions, values)
                if self.senders is not None:
                    self.senders.index_add_(0, positions, torch.ones_like(values))
            if self.senders is not None:
                self.total.div_(self.senders.clamp_(min=1))
            buffer.copy_(self.total)


def cost(problem: Problem, *, k: int) -> Cost:
    """Return the header's formula with an incomplete last chunk and the padding of the codes."""
    n = problem.world_size
    sent = (n - 1) * top_k_bytes(problem.count, k)
    return Cost(sent_bytes=sent, messages=n - 1, total_bytes=sent * n, steps=min(n - 1, 1))
