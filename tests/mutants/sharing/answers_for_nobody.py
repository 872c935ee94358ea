"""Leaves the states of its tokens to nobody on the last rank."""

from __future__ import annotations

from paceline.baselines.serving.ulysses_inference import UlyssesInference

from paceline import technique
from paceline.families.serving.api.distributing import Batch, Left


@technique(
    name="answers-for-nobody", family="serving", implements=("distribute",), summary="known to be wrong"
)
class Mutant(UlyssesInference):
    """Known to be wrong."""

    def step(self, batch: Batch, mode: int) -> Left:
        """Return nothing on the last rank."""
        left = super().step(batch, mode)
        if self._setting.rank < self._setting.world_size - 1:
            return left
        return Left(rows=left.rows[:0], states=left.states[:0])
