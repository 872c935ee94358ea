"""Leaves the last layer out."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.denoising import Comm, Setting, Tensor


@technique(name="forgets-a-layer", family="serving", implements=("denoise",), summary="known to be wrong")
class Mutant:
    """Known to be wrong."""

    def __init__(self, setting: Setting, comm: Comm) -> None:
        self._setting = setting

    def denoise(self, images_BSS: Tensor, exact: int) -> Tensor | None:
        """Compute all layers but one."""
        setting = self._setting
        if setting.rank > 0:
            return None
        for step in range(setting.num_steps):
            stream = setting.layers(range(setting.num_layers - 1), setting.embed(images_BSS), step)
            images_BSS = setting.advance(images_BSS, setting.noise(stream), step, step + 1)
        return images_BSS
