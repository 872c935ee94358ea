"""Eight-bit ring all-reduce: codes and a codebook on the wire, sums in fp32.

INTELLECT-1 Technical Report (Prime Intellect, 2024), the int8 all-reduce of the PRIME framework.

Algorithm (n ranks, buffer cut into n chunks):
1. Before each hop of the reduce-scatter, a chunk's partial sum is quantised: 256 uniform buckets over mean ± 6σ.
2. The codebook holds the mean of the values in each bucket, so rounding errors inside a bucket cancel on average.
3. The receiver looks codes up in the codebook and adds in fp32.
4. The owner of a finished chunk quantises it once more; codes and codebook travel around unchanged (all-gather).
5. The owner takes its own decoded values too, so that all ranks end with the same bits.

Cost: S/4 · 2(n−1)/n bytes sent by each rank, plus 1024 bytes of codebook in each of 2(n−1) messages.
Memory: two messages and one chunk in fp32.

Error on Gaussian inputs: a bucket is 12σ/256 wide, so one quantisation adds 0.0135 σ; partial sums of 1 … n ranks are
quantised, which makes 0.0135 · √((n+1)/2) of the result's norm.

Limits: values beyond 6σ share the mean of the outer bucket, which costs heavy-tailed inputs up to a quarter of the
norm; chunks of a few hundred elements pay more for the codebook than they save.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.codecs import bucket_bytes, decode_buckets, encode_buckets
from paceline.families.collectives.api.problem import Comm, Cost, Problem, chunk_bounds


@technique(
    name="int8-ring",
    family="collectives",
    implements=("all_reduce",),
    summary="ring all-reduce with 8-bit codes and a codebook, sums in fp32",
    paper="intellect-1",
    requires={"dtypes": ("float32", "bfloat16", "float16", "float64")},
    properties={
        "exact": False,
        "error": "bounded",
        # By the header's 0.0135 · √((n + 1)/2), which reaches this bound at 26 ranks.
        "max_relative_l2": 0.05,
        # Two values only: each has a bucket of its own, whose mean is the value.
        "lossless_on": ("shared-sign",),
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "the int8 all-reduce by the header, not read for this card",
            "code": (
                "github.com/PrimeIntellect-ai/prime: src/zeroband/collectives.py, "
                "src/zeroband/C/csrc/collectives.cpp, and its compression.py and compression.cpp"
            ),
        },
        "deviations": (
            (
                "Buckets reach from mean − 6σ to mean + 6σ; the authors' code spreads its 256 over 6σ in all, so "
                "that each is half as wide and clips at 3σ, which loses 0.0154 of the norm of Gaussian values "
                "where this loses 0.0135."
            ),
            (
                "Values are taken about their mean; the authors' code has commented that out, and takes σ about "
                "zero."
            ),
            "A chunk a rank travels, where the authors halve it and have two on their way.",
            "Sums are sums, where the authors also divide by the number of ranks.",
        ),
        "constants": {
            "clip_sigmas": {
                "here": 6.0,
                "authors": "3: RANGE_IN_SIGMAS = 6 for the whole range, compression.py",
            },
        },
        "checked_by": (
            "tests/unit/test_codecs.py::test_buckets_keep_gaussian_values_within_two_percent",
            "tests/unit/test_codecs.py::test_half_as_wide_buckets_lose_by_clipping_what_they_gain",
            "tests/unit/test_codecs.py::test_bucket_edges_instead_of_means_cost_accuracy",
            "tests/unit/test_lossy_costs.py::test_formulas_are_exact_and_ranks_agree_at_small_and_odd_counts",
        ),
    },
)
class Int8Ring:
    """A ring whose messages are 8-bit codes."""

    def __init__(self, problem: Problem, comm: Comm, *, clip_sigmas: float = 6.0) -> None:
        self.problem = problem
        self.comm = comm
        self.clip_sigmas = clip_sigmas
        self.next = (problem.rank + 1) % problem.world_size
        self.previous = (problem.rank - 1) % problem.world_size
        self.bounds = chunk_bounds(problem.count, problem.world_size)
        longest = bucket_bytes(self.bounds[0][1])
        self.outgoing = problem.empty(longest, dtype=torch.uint8)
        self.incoming = problem.empty(longest, dtype=torch.uint8)

    def run(self, *buffers: Tensor) -> None:
        """Sum ``buffers[0]`` over ranks in place."""
        (buffer,) = buffers
        if self.problem.world_size == 1:
            return
        total = self._reduce_scatter(buffer)
        self._all_gather(buffer, total)

    def _reduce_scatter(self, buffer: Tensor) -> Tensor:
        """Return this rank's chunk of the sum, chunk rank + 1, in fp32."""
        size, rank = self.problem.world_size, self.problem.rank
        # The running sum stays in fp32 from here on; 8 bits are a format of messages only,
        # or roundings would pile up in it.
        partial = self._chunk(buffer, rank).to(torch.float32)
        for step in range(size - 1):
            index = (rank - step - 1) % size
            # The same memory in every step: ``exchange`` returns once the message before has left.
            message = self._encode(partial)
            received = self._message(self.incoming, index)
            self.comm.exchange(message, self.next, received, self.previous)
            with self.comm.span("decompress"):
                partial = decode_buckets(received).add_(self._chunk(buffer, index))
        return partial

    def _all_gather(self, buffer: Tensor, total: Tensor) -> None:
        size, rank = self.problem.world_size, self.problem.rank
        message = self._encode(total)
        # One step more than there are exchanges: the first decodes the own chunk, so that the owner, too, ends with
        # what the codes say and not with the exact sum that only it knows.
        for step in range(size):
            index = (rank + 1 - step) % size
            with self.comm.span("decompress"):
                self._chunk(buffer, index).copy_(decode_buckets(message))
            if step < size - 1:
                # In turn: what has just arrived is sent next, so the next message must land in the other buffer.
                spare = self.incoming if step % 2 == 0 else self.outgoing
                received = self._message(spare, index - 1)
                self.comm.exchange(message, self.next, received, self.previous)
                message = received

    def _encode(self, values: Tensor) -> Tensor:
        with self.comm.span("compress"):
            message = self.outgoing[: bucket_bytes(values.numel())]
            encode_buckets(values, message, clip_sigmas=self.clip_sigmas)
        return message

    def _chunk(self, buffer: Tensor, index: int) -> Tensor:
        start, stop = self.bounds[index % self.problem.world_size]
        return buffer[start:stop]

    def _message(self, memory: Tensor, index: int) -> Tensor:
        start, stop = self.bounds[index % self.problem.world_size]
        return memory[: bucket_bytes(stop - start)]


def cost(problem: Problem) -> Cost:
    """Return the header's formula with the exact sizes of chunks; empty chunks are not sent."""
    n = problem.world_size
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    sizes = [bucket_bytes(stop - start) for start, stop in chunk_bounds(problem.count, n)]
    # Rank r never sends chunk r + 1 while reducing (it ends there), nor chunk r + 2 while gathering (it ends there).
    sent = [2 * sum(sizes) - sizes[(r + 1) % n] - sizes[(r + 2) % n] for r in range(n)]
    live = [s > 0 for s in sizes]
    messages = [2 * sum(live) - live[(r + 1) % n] - live[(r + 2) % n] for r in range(n)]
    return Cost(sent_bytes=max(sent), messages=max(messages), total_bytes=sum(sent), steps=2 * (n - 1))
