"""Warms up for one step, whatever is asked."""

from __future__ import annotations

from paceline.baselines.serving.asyncdiff import AsyncDiff

from paceline import technique
from paceline.families.serving.api.denoising import Tensor


@technique(name="never-exact", family="serving", implements=("denoise",), summary="known to be wrong")
class Mutant(AsyncDiff):
    """Known to be wrong."""

    def denoise(self, images_BSS: Tensor, exact: int) -> Tensor | None:
        """Know better."""
        return super().denoise(images_BSS, 1)
