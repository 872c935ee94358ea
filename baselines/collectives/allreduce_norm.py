"""All-reduce, then RMSNorm on every rank: how tensor-parallel layers are usually put together.

The baseline of TokenWeave (Gond, Kwatra and Ramjee, arXiv 2505.11329, 2025, section 2.2).

Algorithm, for each layer (n ranks, T tokens, H hidden):
1. Multiply the own columns of the activations with the own rows of the weights: a partial sum (T, H).
2. All-reduce it around a ring over chunks of tokens.
3. Normalise all T rows, on every rank alike.

Cost of a layer: 2(n−1)/n · T·H elements from each rank in 2(n−1) messages; T rows normalised on each rank.

Difference from the paper: a ring of our own instead of the vendor's all-reduce, so that bytes can be counted.
Limits: the norm's work does not shrink with n.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import Comm, Cost, Problem, chunk_bounds
from paceline.families.collectives.api.rings import all_gather, finish, reduce_scatter, sent


@technique(
    name="allreduce-norm",
    family="collectives",
    implements=("norm_layer",),
    summary="all-reduce, then the norm of all rows on every rank",
    properties={"exact": True},
)
class AllReduceNorm:
    """Row-parallel layers with an all-reduce before each norm. T tokens, H hidden, L layers, K = H / n."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        # Cut along tokens, as ``rs-norm-ag`` does, so that both send the same bytes; the first chunk is the longest.
        self.bounds = chunk_bounds(problem.integer("tokens"), problem.world_size)
        hidden = problem.integer("hidden")
        self.scratch = problem.empty(2 * (self.bounds[0][1] - self.bounds[0][0]) * hidden)

    def run(self, x_TH: Tensor, weights_LKH: Tensor, gains_LH: Tensor, out_TH: Tensor) -> None:
        """Run all layers; ``out_TH`` receives the last one's result."""
        problem, rank = self.problem, self.problem.rank
        rows = weights_LKH.shape[1]
        members = list(range(problem.world_size))
        for weight_KH, gain_H in zip(weights_LKH, gains_LH, strict=True):
            partial_TH = x_TH[:, rank * rows : (rank + 1) * rows] @ weight_KH
            chunks = [partial_TH[a:b].view(-1) for a, b in self.bounds]
            finish(reduce_scatter(self.comm, chunks, members, rank, self.scratch))
            finish(all_gather(self.comm, chunks, members, rank))
            # All T rows, the same on every rank: the work that reduce-scatter and all-gather
            # around the norm would divide by n.
            x_TH = problem.rms_norm(partial_TH, gain_H)
        out_TH.copy_(x_TH)


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header over all layers, with the true chunk sizes of every rank."""
    n, layers = problem.world_size, problem.integer("layers")
    sizes = [(b - a) * problem.integer("hidden") for a, b in chunk_bounds(problem.integer("tokens"), n)]
    leaving = [sent(sizes, place) for place in range(n)]
    item = problem.item_bytes * layers
    return Cost(
        sent_bytes=max(elements for elements, _ in leaving) * item,
        messages=max(messages for _, messages in leaving) * layers,
        total_bytes=sum(elements for elements, _ in leaving) * item,
        steps=2 * (n - 1) * layers,
    )
