"""Ternary all-reduce: every element becomes −s, 0 or +s at random, so that the expectation is the element itself.

Wen et al., "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning" (NIPS 2017): ternarising,
section 3.1; layer-wise scales and clipping, section 3.3.

Algorithm (n ranks):
1. Cut the buffer into layers; a layer's scale s is its largest magnitude (after clipping, where that is switched on).
2. Draw b from Bernoulli(|v| / s) for each element v and keep sign(v) · b: its expectation times s is v.
3. Pack four codes into a byte behind the scales, and send the message to every other rank.
4. Each rank sums all decoded messages in rank order, its own included, so that all ranks end with the same bits.

Cost: (n−1)(S/16 + 4⌈count/layer⌉) bytes sent by each rank (two bits for each 32-bit element and the scales) in n−1
messages; one dependent step. Memory: n messages and S in fp32.

Limits: traffic grows with n; the variance grows with the ratio of a layer's largest to its mean magnitude.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.codecs import decode_ternary, encode_ternary, ternary_bytes
from paceline.families.collectives.api.problem import Comm, Cost, Problem


@technique(
    name="ternary",
    family="collectives",
    implements=("all_reduce",),
    summary="unbiased ternary codes of two bits, gathered and summed",
    paper="terngrad",
    requires={"dtypes": ("float32", "bfloat16", "float16", "float64")},
    # On ±1 every magnitude is the scale, so that all Bernoulli draws have chance 1.
    properties={"exact": False, "error": "unbiased", "lossless_on": ("shared-sign",)},
    fidelity={
        "source": {
            "read": "code",
            "paper": "sections 3.1 and 3.3 by the header, not read for this card",
            "code": "github.com/wenwei202/terngrad: terngrad/inception/bingrad_common.py",
        },
        "deviations": (
            (
                "Every rank receives what the authors' parameter server would, so that the upstream is theirs, n "
                "− 1 times."
            ),
            "Layers are runs of equal length, since a buffer does not know the layers of its model.",
            "Clipping is off unless it is asked for: it trades unbiasedness for a lower variance.",
            "Deviations are taken about zero; the authors subtract the layer's mean.",
            "With clipping the scale is the largest magnitude that is left; the authors' is the bound itself.",
            "Each rank has scales of its own; the authors' code shares their maximum over workers.",
        ),
        "constants": {
            "layer": {
                "here": 16384,
                "authors": "a tensor of the model",
                "official": "a tensor",
                "source": "github.com/wenwei202/terngrad: terngrad/inception/bingrad_common.py",
                "differs": "layers are runs of equal length, since a buffer does not know those of its model",
            },
            "clip_sigmas": {
                "here": 0.0,
                "authors": "2.5, bingrad_common.py",
                "official": 2.5,
                "source": "github.com/wenwei202/terngrad: terngrad/inception/bingrad_common.py",
                "differs": "clipping is off unless it is asked for: it trades unbiasedness for a lower variance",
            },
        },
        "checked_by": (
            "tests/unit/test_codecs.py::test_ternary_is_unbiased",
            "tests/unit/test_codecs.py::test_clipped_ternary_is_seen_to_be_biased",
            "tests/unit/test_codecs.py::test_clipping_lowers_the_variance_of_ternary_values",
            "tests/unit/test_lossy_costs.py::test_formulas_are_exact_and_ranks_agree_at_small_and_odd_counts",
        ),
    },
)
class Ternary:
    """All-gather of ternary messages, then a local sum."""

    def __init__(self, problem: Problem, comm: Comm, *, layer: int = 16384, clip_sigmas: float = 0.0) -> None:
        self.problem = problem
        self.comm = comm
        self.layer = layer
        self.clip_sigmas = clip_sigmas
        # Kept from call to call: calls must draw anew, or the mean of many would repeat one call's error.
        self.generator = torch.Generator(device=problem.device)
        self.generator.manual_seed(problem.seed * 4099 + problem.rank)  # ranks must draw independently
        size = ternary_bytes(problem.count, layer)
        self.messages = [problem.empty(size, dtype=torch.uint8) for _ in range(problem.world_size)]
        self.total = problem.empty(problem.count, dtype=torch.float32)

    def run(self, *buffers: Tensor) -> None:
        """Sum ``buffers[0]`` over ranks in place."""
        (buffer,) = buffers
        rank, size = self.problem.rank, self.problem.world_size
        if size == 1:
            return
        own = self.messages[rank]
        with self.comm.span("compress"):
            values = buffer.to(torch.float32)
            encode_ternary(values, own, self.generator, layer=self.layer, clip_sigmas=self.clip_sigmas)
        others = [(rank + shift) % size for shift in range(1, size)]
        self.comm.start(
            sends=[(own, peer) for peer in others],
            receives=[(self.messages[peer], peer) for peer in others],
        ).wait()
        with self.comm.span("decompress"):
            self.total.zero_()
            # Rank order, the own message decoded like all others: every rank adds the same numbers in the same order.
            for message in self.messages:
                self.total.add_(decode_ternary(message, self.problem.count, layer=self.layer))
            buffer.copy_(self.total)


def cost(problem: Problem, *, layer: int) -> Cost:
    """Return the header's formula, with the last byte of codes filled up."""
    n = problem.world_size
    sent = (n - 1) * ternary_bytes(problem.count, layer)
    return Cost(sent_bytes=sent, messages=n - 1, total_bytes=sent * n, steps=min(n - 1, 1))
