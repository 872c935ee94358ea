"""Shift parallelism: many tokens are computed in sequence parallelism, few in tensor parallelism, over one cache.

Hidayetoglu, Qiao, Wyatt, Rasley, He and Rajbhandari, 2025, "Shift Parallelism: Low-Latency, High-Throughput LLM
Inference for Dynamic Workloads" (arXiv:2509.16495).

Algorithm: sequence parallelism after Ulysses (with tensor parallelism of T inside) and tensor parallelism of all P
ranks have the same heads of keys on each rank, so that a step of either goes on where a step of the other has ended. A
step with fewer tokens than a threshold is computed by all ranks together, a longer one with its tokens dealt out.
Cost: switching moves nothing. Beside 1/T of the weights, which sequence parallelism needs, a rank has the 1/P that
tensor parallelism needs: T/P more.
Differences: the threshold follows from what steps cost in both modes here, by decodes behind ``context`` tokens,
unless it is given.
Limits: heads as in tensor parallelism of P ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.baselines.serving.tensor_parallel import TensorParallel
from paceline.baselines.serving.ulysses_inference import UlyssesInference

from paceline import technique
from paceline.families.serving.api.distributing import Batch, Comm, Left, Piece, Setting, StepCosts

SEQUENCE, TENSOR = 0, 1
MOST = 1 << 14
"""Tokens up to which a threshold is looked for; steps are shorter."""


@technique(
    name="shift-parallelism",
    family="serving",
    implements=("distribute",),
    paper="shift-parallelism",
    summary="sequence parallelism for steps of many tokens and tensor parallelism for those of few, over one cache",
)
class ShiftParallelism:
    """Two modes over one cache.

    Args:
        setting: Of the rank.
        comm: The communicator.
        tensor: Shares of the weights in sequence parallelism, T.
        threshold: Tokens from which a step is computed in sequence parallelism; 0: as costs say.
        context: Tokens behind which decodes are compared.
    """

    modes = ("sequence", "tensor")

    def __init__(
        self, setting: Setting, comm: Comm, *, tensor: int = 1, threshold: int = 0, context: int = 64
    ) -> None:
        # Both take their weights, since a switch must not load any. Both write the heads of keys of rank r in a P-way
        # split, so either can read the other's cache.
        self._modes = (UlyssesInference(setting, comm, tensor=tensor), TensorParallel(setting, comm))
        self._threshold, self._given, self._context = threshold, threshold > 0, context

    def step(self, batch: Batch, mode: int) -> Left:
        """Compute a step in one of the modes."""
        left: Left = self._modes[mode].step(batch, 0)
        return left

    def learn(self, costs: Sequence[StepCosts]) -> None:
        """Find the fewest decodes that sequence parallelism computes faster."""
        if self._given:
            return

        # Sequence parallelism sends less per token and reads more weights, so once it gains it goes on gaining with
        # more tokens: that is what lets a bisection find the threshold.
        def gains(tokens: int) -> bool:
            decodes = [(self._context, 1, True)] * tokens
            return costs[SEQUENCE].seconds(decodes, 0) <= costs[TENSOR].seconds(decodes, 0)

        fewest, most = 1, MOST
        while fewest < most:
            middle = (fewest + most) // 2
            fewest, most = (fewest, middle) if gains(middle) else (middle + 1, most)
        self._threshold = fewest

    def choose(self, pieces: Sequence[Piece]) -> int:
        """Compare the step's tokens with the threshold."""
        # A function of the step alone: ranks that chose differently would wait for each other's messages for ever.
        return SEQUENCE if sum(count for _, count, _ in pieces) >= self._threshold else TENSOR
