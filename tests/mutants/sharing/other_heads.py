"""Switches to a mode whose ranks have other heads of keys, and finds another rank's, or none, in its cache."""

from __future__ import annotations

from paceline.baselines.serving.shift_parallelism import ShiftParallelism
from paceline.baselines.serving.tensor_parallel import Shards

from paceline import technique
from paceline.families.serving.api.distributing import Comm, Setting


@technique(name="other-heads", family="serving", implements=("distribute",), summary="known to be wrong")
class Mutant(ShiftParallelism):
    """Known to be wrong."""

    def __init__(self, setting: Setting, comm: Comm) -> None:
        super().__init__(setting, comm)
        place = setting.world_size - 1 - setting.rank
        self._modes[1]._shards = Shards(setting, place, setting.world_size)
