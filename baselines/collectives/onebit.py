"""One-bit all-reduce: signs and a scale, with what the signs leave out made good in later calls.

Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed" (2021), the
compressed all-reduce with two-sided error feedback.

Algorithm (n ranks, buffer cut into n chunks, rank r is the server of chunk r):
1. Worker: add the error kept from the last call, and send each chunk's signs and mean magnitude to its server.
2. Worker: keep what the signs left out as the next call's error.
3. Server: sum the decoded chunks of all workers in rank order and add the server's own kept error.
4. Server: compress that sum in the same way, keep its error, and send it to everyone.
5. Everyone decodes all chunks, the own one too, so that all ranks end with the same bits.

Cost: 2(n−1)/n · S/32 bytes sent by each rank (one bit for each 32-bit element), plus 4 bytes of scale and at most 7
bits of padding in each of 2(n−1) messages; two dependent steps. Memory: (1 + 1/n) S of errors in fp32.

Limits: a single call is a poor estimate (on Gaussian inputs about 0.8 of the norm is missing or wrong); only the mean
over calls approaches the truth. Without ``feedback`` it never does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.codecs import decode_signs, encode_signs, sign_bytes
from paceline.families.collectives.api.problem import Comm, Cost, Problem, chunk_bounds


@technique(
    name="onebit",
    family="collectives",
    implements=("all_reduce",),
    summary="sign bits and scales through chunk servers, error feedback on both sides",
    paper="one-bit-adam",
    requires={"dtypes": ("float32", "bfloat16", "float16", "float64")},
    # On ±1 with one pattern the mean magnitude is every magnitude, at the workers and in the servers' sums.
    properties={"exact": False, "error": "feedback", "lossless_on": ("shared-sign",)},
    fidelity={
        "source": {
            "read": "code",
            "paper": "the compressed all-reduce by the header, not read for this card",
            "code": (
                "github.com/microsoft/DeepSpeed: deepspeed/runtime/comm/nccl.py, "
                "deepspeed/runtime/fp16/onebit/adam.py"
            ),
        },
        "deviations": (
            "The sum is formed and not the mean, as the operation asks.",
            "A worker has a scale for each server's chunk; DeepSpeed's has one for the whole tensor.",
            (
                "The scale is the mean magnitude, which has the least squared error; DeepSpeed's is the root of "
                "the mean square."
            ),
            "The warm-up and the frozen variance belong to the optimiser.",
        ),
        "constants": {
            "feedback": {
                "here": True,
                "authors": "always on, nccl.py",
                "official": True,
                "source": "github.com/microsoft/DeepSpeed: deepspeed/runtime/comm/nccl.py",
            },
        },
        "checked_by": (
            "tests/unit/test_codecs.py::test_signs_keep_every_sign_and_the_mean_magnitude",
            "tests/unit/test_codecs.py::test_signs_without_a_scale_are_seen_as_a_gross_error",
            "tests/unit/test_lossy_costs.py::test_formulas_are_exact_and_ranks_agree_at_small_and_odd_counts",
        ),
    },
)
class OneBit:
    """Compressed all-to-all to the chunk servers, compressed all-gather back."""

    def __init__(self, problem: Problem, comm: Comm, *, feedback: bool = True) -> None:
        self.problem = problem
        self.comm = comm
        self.feedback = feedback
        self.bounds = chunk_bounds(problem.count, problem.world_size)
        start, stop = self.bounds[problem.rank]
        self.own = stop - start
        sizes = [sign_bytes(stop - start) for start, stop in self.bounds]
        self.to_servers = [problem.empty(size, dtype=torch.uint8) for size in sizes]
        self.from_workers = [problem.empty(sign_bytes(self.own), dtype=torch.uint8) for _ in self.bounds]
        self.worker_error = problem.empty(problem.count, dtype=torch.float32)
        self.server_error = problem.empty(self.own, dtype=torch.float32)
        self.reset()

    def reset(self) -> None:
        """Forget the errors kept from earlier calls."""
        self.worker_error.zero_()
        self.server_error.zero_()

    def run(self, *buffers: Tensor) -> None:
        """Sum ``buffers[0]`` over ranks in place."""
        (buffer,) = buffers
        if self.problem.world_size == 1:
            return
        self._compress_for_servers(buffer)
        self._exchange(self.to_servers, self.from_workers)
        result = self._serve()
        # The workers' messages have left: answers land in their memory, since a chunk's
        # answer is as long as its question.
        messages = list(self.to_servers)
        messages[self.problem.rank] = result
        self._exchange([result] * self.problem.world_size, messages)
        with self.comm.span("decompress"):
            # The own chunk is decoded as well: a server that kept its exact sum would end
            # with other bits than its workers.
            for (start, stop), message in zip(self.bounds, messages, strict=True):
                buffer[start:stop].copy_(decode_signs(message, stop - start))

    def _compress_for_servers(self, buffer: Tensor) -> None:
        with self.comm.span("compress"):
            # In place: the memory of the error becomes the corrected values, and
            # ``_keep`` turns them into the new error.
            corrected = self.worker_error.add_(buffer)
            for (start, stop), message in zip(self.bounds, self.to_servers, strict=True):
                chunk = corrected[start:stop]
                encode_signs(chunk, message)
                self._keep(chunk, message)

    def _serve(self) -> Tensor:
        """Sum the workers' chunks with the server's kept error and return the compressed sum."""
        # The own chunk goes through the codec too: ``_keep`` has put what its message left out into the worker's error.
        self.from_workers[self.problem.rank].copy_(self.to_servers[self.problem.rank])
        with self.comm.span("decompress"):
            for message in self.from_workers:
                self.server_error.add_(decode_signs(message, self.own))
        with self.comm.span("compress"):
            # This message has been decoded and added: its memory is free for the answer.
            result = self.from_workers[self.problem.rank]
            encode_signs(self.server_error, result)
            self._keep(self.server_error, result)
        return result

    def _keep(self, corrected: Tensor, message: Tensor) -> None:
        """Leave in ``corrected`` what the message does not carry."""
        if self.feedback:
            corrected.sub_(decode_signs(message, corrected.numel()))
        else:
            corrected.zero_()

    def _exchange(self, outgoing: list[Tensor], incoming: list[Tensor]) -> None:
        rank, size = self.problem.rank, self.problem.world_size
        others = [(rank + shift) % size for shift in range(1, size)]
        self.comm.start(
            sends=[(outgoing[peer], peer) for peer in others],
            receives=[(incoming[peer], peer) for peer in others],
        ).wait()


def cost(problem: Problem) -> Cost:
    """Return the header's formula with exact padding; chunks without elements are not sent."""
    n = problem.world_size
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    sizes = [sign_bytes(stop - start) for start, stop in chunk_bounds(problem.count, n)]
    live = [size > 0 for size in sizes]
    sent = [sum(sizes) - sizes[r] + (n - 1) * sizes[r] for r in range(n)]
    messages = [sum(live) - live[r] + (n - 1) * live[r] for r in range(n)]
    return Cost(sent_bytes=max(sent), messages=max(messages), total_bytes=sum(sent), steps=2)
