"""The contract of techniques whose ranks share the denoising of images.

A technique asks for layers of a trained denoiser at the times of a sampler and sends what it likes through the
communicator. How much it computes and sends is counted here and there; how far its images are off is measured by who
drew the noise.

Shapes: B images, S side of an image, T patches, D width.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from paceline.base.techniques.technique import UnsupportedError
from paceline.families.collectives.api.problem import Comm, chunk_bounds
from paceline.families.serving.api.denoiser import Network
from paceline.families.serving.api.sampler import Sampler

__all__ = ["Comm", "Denoiser", "Setting", "Tensor", "UnsupportedError", "chunk_bounds"]


class Setting:
    """What a technique has of its rank.

    Args:
        rank: This rank, from 0.
        world_size: Ranks that share the work.
        network: The trained denoiser; each of its layers costs the same.
        sampler: Its steps.
    """

    def __init__(self, *, rank: int, world_size: int, network: Network, sampler: Sampler) -> None:
        self.rank, self.world_size = rank, world_size
        self._network, self._sampler = network, sampler
        device = network.places_TD.device
        times = torch.tensor(sampler.times, dtype=torch.float64, device=device)
        # Once for all steps: every rank has the same times, so none of this is ever sent.
        self._known = [network.times(time) for time in times[:, None]]
        self.num_layers = len(network.layers)
        self.num_steps = len(sampler.times) - 1
        self.passes = 0
        """Of one image through one layer, that this rank has computed."""

    def embed(self, images_BSS: Tensor) -> Tensor:
        """Return what enters the first layer, (B, T, D)."""
        return self._network.embed(images_BSS)

    def layers(self, which: range, x_BTD: Tensor, step: int) -> Tensor:
        """Return the stream behind some layers at the time of a step, (B, T, D)."""
        for number in which:
            x_BTD = self._network.layers[number](x_BTD, self._known[step])
        # Counted where layers are computed: a technique has no other way to them, and reports nothing itself.
        self.passes += len(which) * len(x_BTD)
        return x_BTD

    def noise(self, x_BTD: Tensor) -> Tensor:
        """Return the noise that the last layer's stream says, (B, S, S)."""
        return self._network.read_out(x_BTD)

    def advance(self, images_BSS: Tensor, noise_BSS: Tensor, step: int, to: int) -> Tensor:
        """Return images at the time of step ``to``, ``num_steps`` for the end, from those at the time of ``step``."""
        return self._sampler.advance(images_BSS, noise_BSS, step, to)

    def empty_stream(self, batch: int) -> Tensor:
        """Return room for a stream of some images, (B, T, D)."""
        shape = self._network.shape
        return self._network.places_TD.new_empty(batch, shape.patches, shape.width)


class Denoiser(Protocol):
    """A technique of the operation ``denoise``: ``T(setting, comm, **options)``."""

    def denoise(self, images_BSS: Tensor, exact: int) -> Tensor | None:
        """Return images without noise on rank 0.

        Args:
            images_BSS: Noise of deviation 1, the same on all ranks; not to be changed.
            exact: So many first steps at least are computed from nothing older than their own images; with all of
                them the images are those of one rank that does one step after the other.
        """
