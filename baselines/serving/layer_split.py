"""Layers split between ranks: each rank has some of the layers and waits for the rank before it.

Algorithm: rank r of P computes layers r·L/P to (r + 1)·L/P in every step and sends the stream to rank r + 1; the last
sends the noise to the first, which has the images.
Cost: an 1/P of the weights a rank, and one rank's time at any moment: S·L layers one after the other, and in each step
(P - 1) streams and one image of messages.
"""

from __future__ import annotations

import torch

from paceline import technique
from paceline.families.serving.api.denoising import Comm, Setting, Tensor, chunk_bounds


@technique(
    name="layer-split",
    family="serving",
    implements=("denoise",),
    summary="each rank computes some of the layers, one rank after the other",
)
class LayerSplit:
    """Ranks by turns."""

    def __init__(self, setting: Setting, comm: Comm) -> None:
        self._setting, self._comm = setting, comm
        self._mine = range(*chunk_bounds(setting.num_layers, setting.world_size)[setting.rank])

    def denoise(self, images_BSS: Tensor, exact: int) -> Tensor | None:
        """Hand every step's stream from rank to rank."""
        setting, comm = self._setting, self._comm
        last = setting.world_size - 1
        noise = torch.empty_like(images_BSS)
        for step in range(setting.num_steps):
            # A line and no ring of waits: rank 0 sends before it receives, every other rank receives before it sends,
            # so blocking messages cannot deadlock.
            if setting.rank == 0:
                stream = setting.embed(images_BSS)
            else:
                stream = setting.empty_stream(len(images_BSS))
                comm.receive(stream, setting.rank - 1)
            stream = setting.layers(self._mine, stream, step)
            if setting.rank < last:
                comm.send(stream.contiguous(), setting.rank + 1)
            else:
                noise = setting.noise(stream).contiguous()
                if last > 0:
                    comm.send(noise, 0)
            if setting.rank == 0:
                if last > 0:
                    comm.receive(noise, last)
                images_BSS = setting.advance(images_BSS, noise, step, step + 1)
        return images_BSS if setting.rank == 0 else None
