"""Leaves the feed-forward layer of some rows out."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.baselines.serving.nano_batched import NanoBatched

from paceline import technique
from paceline.families.serving.api.overlapping import Given, NanoBatch


@technique(
    name="leaves-rows-out",
    family="serving",
    implements=("overlap",),
    summary="leaves the feed-forward layer of some rows out",
)
class LeavesRowsOut:
    """Does less."""

    def order(self, given: Given) -> Sequence[NanoBatch]:
        """Return an order without the second half of one operator."""
        return [b for b in NanoBatched(parts=2).order(given) if b.operator != "down" or b.begin == 0]
