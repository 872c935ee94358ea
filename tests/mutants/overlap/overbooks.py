"""Computes two halves of the batch at the same time, each on the whole device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.baselines.serving.nano_batched import NanoBatched

from paceline import technique
from paceline.families.serving.api.overlapping import Given, NanoBatch


@technique(
    name="overbooks",
    family="serving",
    implements=("overlap",),
    summary="computes two halves of the batch at the same time, each on the whole device",
)
class Overbooks:
    """Has two devices where there is one."""

    def order(self, given: Given) -> Sequence[NanoBatch]:
        """Return both halves of every layer's first operator at once."""
        order = list(NanoBatched(parts=2).order(given))
        return [replace(order[1], begin_s=0.0) if n == 1 else b for n, b in enumerate(order)]
