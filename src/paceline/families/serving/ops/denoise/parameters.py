"""Parameters of ``denoise``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.serving.core.planning.parameters import RANK_LINKS, RANKS

PARAMETERS: tuple[Parameter, ...] = (
    RANKS,
    *RANK_LINKS,
    Parameter(name="images", kind="count", doc="That are denoised together.", default=32, minimum=4),
    Parameter(name="steps", kind="count", doc="Of the sampler, from noise to image.", default=50, minimum=2),
)
