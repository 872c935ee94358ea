"""Sends by a collective of the backend, which cannot be replayed."""

from __future__ import annotations

from paceline.baselines.serving.sequential_denoising import SequentialDenoising

from paceline import technique
from paceline.families.serving.api.denoising import Comm, Setting, Tensor


@technique(name="asks-the-backend", family="serving", implements=("denoise",), summary="known to be wrong")
class Mutant(SequentialDenoising):
    """Known to be wrong."""

    def __init__(self, setting: Setting, comm: Comm) -> None:
        super().__init__(setting, comm)
        self._comm = comm

    def denoise(self, images_BSS: Tensor, exact: int) -> Tensor | None:
        """Tell all ranks."""
        images = super().denoise(images_BSS, exact)
        told = images_BSS.clone() if images is None else images
        self._comm.backend.broadcast(told, 0)
        return told
