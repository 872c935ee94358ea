"""Lets every operator begin while the one before it is half done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.baselines.serving.sequential_operators import SequentialOperators

from paceline import technique
from paceline.families.serving.api.overlapping import Given, NanoBatch


@technique(
    name="begins-early",
    family="serving",
    implements=("overlap",),
    summary="lets every operator begin while the one before it is half done",
)
class BeginsEarly:
    """Waits for nothing."""

    def order(self, given: Given) -> Sequence[NanoBatch]:
        """Return the sequential order, in half its time and on half the device."""
        order = SequentialOperators().order(given)
        return [replace(b, begin_s=b.begin_s / 2, share=0.5) for b in order]
