"""Leaves out what the other ranks' inner columns add, in the last layer."""

from __future__ import annotations

from paceline.baselines.serving.tensor_parallel import TensorParallel, total

from paceline import technique
from paceline.families.serving.api.distributing import Batch, Left


@technique(name="forgets-a-sum", family="serving", implements=("distribute",), summary="known to be wrong")
class Mutant(TensorParallel):
    """Known to be wrong."""

    def step(self, batch: Batch, mode: int) -> Left:
        """Sum all but one product over ranks."""
        setting, shards = self._setting, self._shards
        x, turns = setting.embed(batch.tokens_N), setting.turns(batch.positions_N)
        for layer in range(setting.shape.layers):
            q, k, v = shards.project(layer, x, turns)
            setting.cache.write(layer, shards.keys, batch.slots_N, k, v)
            x = x + total(
                self._comm, shards.mix(layer, setting.cache.attend(layer, shards.keys, q)), self._members
            )
            inner = shards.feed_forward(layer, x)
            x = x + (total(self._comm, inner, self._members) if layer + 1 < setting.shape.layers else inner)
        return Left(rows=batch.last_rows, states=x[batch.last_rows])
