"""Right where it is asked to be; else the images belong to other noise."""

from __future__ import annotations

from paceline.baselines.serving.sequential_denoising import SequentialDenoising

from paceline import technique
from paceline.families.serving.api.denoising import Tensor


@technique(name="other-images", family="serving", implements=("denoise",), summary="known to be wrong")
class Mutant(SequentialDenoising):
    """Known to be wrong."""

    def denoise(self, images_BSS: Tensor, exact: int) -> Tensor | None:
        """Return each image in the place of the next."""
        images = super().denoise(images_BSS, exact)
        return images if exact or images is None else images.roll(1, 0)
