"""Data parallelism in serving: a whole model on every rank, and requests of its own.

Common practice; the baseline that sends nothing.

Algorithm: requests are dealt out to ranks, each of which serves its own.
Cost: nothing is sent; P copies of the weights; a request is computed by one rank however idle the others are.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.baselines.serving.tensor_parallel import TensorParallel

from paceline import technique
from paceline.families.serving.api.distributing import Batch, Comm, Left, Piece, Setting, StepCosts


@technique(
    name="data-parallel",
    family="serving",
    implements=("distribute",),
    summary="a whole model on every rank, and requests of its own; nothing is sent",
    properties={"replicated": True},
)
class DataParallel:
    """One rank that shares with nobody."""

    modes = ("whole",)

    def __init__(self, setting: Setting, comm: Comm) -> None:
        # A replicated technique's setting has one rank, over which tensor parallelism is the whole model and its sums
        # send nothing.
        self._whole = TensorParallel(setting, comm)

    def step(self, batch: Batch, mode: int) -> Left:
        """Compute all tokens here."""
        left: Left = self._whole.step(batch, 0)
        return left

    def learn(self, costs: Sequence[StepCosts]) -> None:
        """Have no choice."""

    def choose(self, pieces: Sequence[Piece]) -> int:
        """Return the only mode."""
        return 0
