"""Images that nobody has to fetch: a disc and a bar with soft edges on a slope of grey, drawn from a seed."""

from __future__ import annotations

import torch
from torch import Tensor

SOFT = 0.08
"""Width of an edge, as a share of the side."""


def draw_images(count: int, side: int, generator: torch.Generator) -> Tensor:
    """Return images with values in [-1, 1], (count, side, side) in float32."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    at = (torch.arange(side) + 0.5) / side
    y, x = at.view(1, side, 1), at.view(1, 1, side)
    slope, turn = uniform(-0.3, 0.3), uniform(0, 6.2832)
    image = -0.6 + slope * ((x - 0.5) * turn.cos() + (y - 0.5) * turn.sin())
    bar_x, width, bar_grey = uniform(0.15, 0.85), uniform(0.05, 0.12), uniform(-0.2, 0.3)
    inside = torch.sigmoid((width - (x - bar_x).abs()) / (SOFT / 4)).expand_as(image)
    image = image + inside * (bar_grey - image)
    disc_x, disc_y, radius, disc_grey = (
        uniform(0.25, 0.75),
        uniform(0.25, 0.75),
        uniform(0.12, 0.3),
        uniform(0.4, 1.0),
    )
    away = ((x - disc_x) ** 2 + (y - disc_y) ** 2).sqrt()
    inside = torch.sigmoid((radius - away) / (SOFT / 4))
    return image + inside * (disc_grey - image)
