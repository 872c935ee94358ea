"""Reduce-scatter, RMSNorm of the own tokens, all-gather: the norm moves between the two halves of the all-reduce.

Gond, Kwatra and Ramjee, "TokenWeave: Efficient Compute-Communication Overlap for Distributed LLM Inference",
arXiv 2505.11329, 2025, sections 3.1 (token split) and 3.3 (fused norm).

Algorithm, for each layer (n ranks, T tokens, H hidden):
1. Multiply the own columns of the activations with the own rows of the weights: a partial sum (T, H).
2. Reduce-scatter it over tokens: each rank ends with the sum of its T/n tokens.
3. Normalise those rows only, since RMSNorm needs nothing of other tokens.
4. All-gather the normalised rows.
With ``split = 2`` the tokens form two halves, and while one half's messages travel the other half computes.

Cost of a layer: the bytes of an all-reduce, 2(n−1)/n · T·H elements from each rank; ⌈T/n⌉ rows normalised instead of T.

Limits: on a CPU whose cores all compute, a message that travels meanwhile takes its core from the computation.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem, chunk_bounds
from paceline.families.collectives.api.rings import all_gather, reduce_scatter, sent


@technique(
    name="rs-norm-ag",
    family="collectives",
    implements=("norm_layer",),
    summary="reduce-scatter, norm of the own tokens, all-gather",
    paper="tokenweave",
    properties={"exact": True},
    fidelity={
        "source": {
            "read": "code",
            "paper": "the abstracts of versions 1, 4 and 5, read for this card; sections 3.1 and 3.3 by the header",
            "code": "github.com/microsoft/tokenweave: artifact/configs_generator/src_files/llama_overlap_fused.py",
        },
        "deviations": (
            "Rings of point-to-point messages stand for multimem instructions inside one kernel.",
            (
                "Halves are equal; the authors round the number of tokens up to 256 before they halve it, and "
                "shift the border by a tuned offset."
            ),
            "Any number of tokens is split; the authors split from 1024 on.",
            "There is no residual stream.",
        ),
        "constants": {
            "split": {
                "here": 1,
                "authors": "2 from 1024 tokens on, llama_overlap_fused.py",
                "official": 2,
                "source": "github.com/microsoft/tokenweave: "
                "artifact/configs_generator/src_files/llama_overlap_fused.py",
                "differs": "halves are an arm of their own; they split from 1024 tokens on",
            },
        },
        "checked_by": ("tests/conformance/test_conformance.py::test_a_technique_conforms",),
    },
)
class ReduceScatterNormAllGather:
    """Row-parallel layers with the norm inside the all-reduce. T tokens, H hidden, L layers, K = H / n."""

    def __init__(self, problem: Problem, comm: Comm, *, split: int = 1) -> None:
        self.problem = problem
        self.comm = comm
        self.parts = chunk_bounds(problem.integer("tokens"), split)
        longest = -(-max(b - a for a, b in self.parts) // problem.world_size)
        # One for each part: with a split, messages of several parts are in flight at once.
        self.scratch = [problem.empty(2 * longest * problem.integer("hidden")) for _ in self.parts]

    def run(self, x_TH: Tensor, weights_LKH: Tensor, gains_LH: Tensor, out_TH: Tensor) -> None:
        """Run all layers; the parts take turns whenever one has started a message."""
        waiting = [
            self._layers(x_TH[a:b], weights_LKH, gains_LH, out_TH[a:b], scratch)
            for (a, b), scratch in zip(self.parts, self.scratch, strict=True)
        ]
        while waiting:
            # Every rank advances the parts in the same order, so messages match. A generator yields
            # None: the default tells its end.
            waiting = [part for part in waiting if next(part, self) is not self]

    def _layers(
        self, x_TH: Tensor, weights_LKH: Tensor, gains_LH: Tensor, out_TH: Tensor, scratch: Tensor
    ) -> Iterator[None]:
        problem, rank, size = self.problem, self.problem.rank, self.problem.world_size
        rows, members = weights_LKH.shape[1], list(range(size))
        bounds = chunk_bounds(x_TH.shape[0], size)
        first, last = bounds[rank]
        # Parts take turns on the same links, and a receive posted ahead would take the
        # other part's message (``api.rings``).
        alone = len(self.parts) == 1
        for weight_KH, gain_H in zip(weights_LKH, gains_LH, strict=True):
            partial_TH = x_TH[:, rank * rows : (rank + 1) * rows] @ weight_KH
            chunks = [partial_TH[a:b].view(-1) for a, b in bounds]
            yield from reduce_scatter(self.comm, chunks, members, rank, scratch, ahead=alone)
            # Between the halves: rows must be complete sums, since the norm is not linear,
            # and are still with one rank only.
            partial_TH[first:last] = problem.rms_norm(partial_TH[first:last], gain_H)
            yield from all_gather(self.comm, chunks, members, rank, ahead=alone)
            x_TH = partial_TH
        out_TH.copy_(x_TH)


def cost(problem: Problem, *, split: int) -> Cost:
    """Return the closed forms of the header over all layers and parts, with the true chunk sizes of every rank."""
    n, layers, hidden = problem.world_size, problem.integer("layers"), problem.integer("hidden")
    elements, messages = [0] * n, [0] * n
    for start, stop in chunk_bounds(problem.integer("tokens"), split):
        sizes = [(b - a) * hidden for a, b in chunk_bounds(stop - start, n)]
        for place in range(n):
            more, parts = sent(sizes, place)
            elements[place] += more
            messages[place] += parts
    item = problem.item_bytes * layers
    return Cost(
        sent_bytes=max(elements) * item,
        messages=max(messages) * layers,
        total_bytes=sum(elements) * item,
        steps=2 * (n - 1) * layers,
    )
