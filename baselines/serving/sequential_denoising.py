"""Sequential denoising: one rank computes one step after the other; the others have nothing to do.

Algorithm: in each of S steps all L layers say the noise in the images, and the sampler takes some of it away.
Cost: S·L layers on one rank; no message.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.denoising import Comm, Setting, Tensor


def whole_step(setting: Setting, images_BSS: Tensor, step: int, to: int) -> Tensor:
    """Return images after a step that one rank computes alone."""
    stream = setting.layers(range(setting.num_layers), setting.embed(images_BSS), step)
    return setting.advance(images_BSS, setting.noise(stream), step, to)


@technique(
    name="sequential-denoising",
    family="serving",
    implements=("denoise",),
    summary="one rank computes one denoising step after the other",
)
class SequentialDenoising:
    """What all others are held against."""

    def __init__(self, setting: Setting, comm: Comm) -> None:
        self._setting = setting

    def denoise(self, images_BSS: Tensor, exact: int) -> Tensor | None:
        """Compute all steps on rank 0."""
        # No message, so ranks need not stay in step: the others return at once.
        if self._setting.rank > 0:
            return None
        for step in range(self._setting.num_steps):
            images_BSS = whole_step(self._setting, images_BSS, step, step + 1)
        return images_BSS
