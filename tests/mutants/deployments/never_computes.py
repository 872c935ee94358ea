"""Gives no worker any of its device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.baselines.serving.unified import Unified

from paceline import technique
from paceline.families.serving.api.deploying import Busy


@technique(name="never-computes", family="serving", implements=("simulate",), summary="known to be wrong")
class Mutant(Unified):
    """Known to be wrong."""

    def shares(self, device: int, workers: Sequence[Busy]) -> Mapping[int, float]:
        """Give nothing."""
        return dict.fromkeys((w.worker for w in workers), 0.0)
