"""From noise to images: the schedule of noise, and one step of the sampler.

Ho, Jain and Abbeel, "Denoising Diffusion Probabilistic Models" (2020), with the cosine schedule of Nichol and Dhariwal
(2021) and the deterministic sampler of Song, Meng and Ermon, "Denoising Diffusion Implicit Models" (2021), equation 12
with sigma = 0: x = a·image + s·noise, a = cos(pi t / 2), s = sin(pi t / 2), t from 0.98 down to 0.
"""

from __future__ import annotations

import math

from torch import Tensor

FIRST_TIME = 0.98
"""At which sampling begins: at 1 nothing of the image would be left to divide by."""


class Sampler:
    """Deterministic steps over equal distances of time.

    Args:
        num_steps: From noise to image.
    """

    def __init__(self, num_steps: int) -> None:
        self.times = tuple(FIRST_TIME * (1 - n / num_steps) for n in range(num_steps + 1))
        """Of each step, and of the end."""

    def advance(self, images_BSS: Tensor, noise_BSS: Tensor, step: int, to: int) -> Tensor:
        """Return images with less noise.

        Args:
            images_BSS: At the time of the step.
            noise_BSS: That is believed to be in them, with a deviation of 1.
            step: From 0.
            to: At whose time they are wanted.
        """
        share, sigma = scales(self.times[step])
        share_next, sigma_next = scales(self.times[to])
        # The image that this noise implies, with the same noise put back at the next level: no fresh noise, so it is
        # deterministic.
        return share_next * ((images_BSS - sigma * noise_BSS) / share) + sigma_next * noise_BSS


def scales(time: float) -> tuple[float, float]:
    """Return what image and noise are multiplied by at a time in [0, 1]; their squares sum to 1."""
    return math.cos(math.pi * time / 2), math.sin(math.pi * time / 2)
