"""Right, but its modes have other heads on each rank: keys and values move before every step.

No mistake, and no shift parallelism: what it moves must be seen. Each mode copies what it misses from the rank that
has it.
"""

from __future__ import annotations

from paceline.baselines.serving.shift_parallelism import ShiftParallelism
from paceline.baselines.serving.tensor_parallel import Shards

from paceline import technique
from paceline.families.serving.api.distributing import Batch, Comm, Left, Setting


@technique(
    name="moves-keys", family="serving", implements=("distribute",), summary="moves keys when it switches"
)
class Mutant(ShiftParallelism):
    """Sequence parallelism, and tensor parallelism with the heads in reverse order."""

    def __init__(self, setting: Setting, comm: Comm) -> None:
        super().__init__(setting, comm)
        self._setting, self._comm = setting, comm
        self._other = setting.world_size - 1 - setting.rank
        self._own = self._modes[1]._shards.keys
        self._modes[1]._shards = Shards(setting, self._other, setting.world_size)

    def step(self, batch: Batch, mode: int) -> Left:
        """Compute, and give the tokens' keys and values to the rank that has them in the other mode."""
        left = super().step(batch, mode)
        cache, slots = self._setting.cache, self._seen(batch)
        theirs = self._modes[1]._shards.keys
        from_heads, to_heads = (self._own, theirs) if mode == 0 else (theirs, self._own)
        for layer in range(self._setting.shape.layers):
            k, v = cache.read(layer, from_heads, slots)
            k_in, v_in = k.new_empty(k.shape), v.new_empty(v.shape)
            if self._other == self._setting.rank:
                k_in, v_in = k, v
            else:
                self._comm.exchange(k, self._other, k_in, self._other)
                self._comm.exchange(v, self._other, v_in, self._other)
            cache.write(layer, to_heads, slots, k_in, v_in)
        return left

    def _seen(self, batch: Batch):  # type: ignore[no-untyped-def]
        """Return slots of all tokens so far, this step's last."""
        self._all = getattr(self, "_all", set()) | set(batch.slots_N.tolist())
        return batch.slots_N.new_tensor(sorted(self._all))
