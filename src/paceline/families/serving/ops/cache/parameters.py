"""Parameters of ``cache``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.serving.core.planning.parameters import OUTPUT_TOKENS, REQUESTS

PARAMETERS: tuple[Parameter, ...] = (
    REQUESTS,
    OUTPUT_TOKENS,
    Parameter(
        name="checkpoint",
        kind="choice",
        doc="The embedded model that reads; the reasoning family trains them.",
        default="strong",
        choices=("strong", "weak"),
    ),
    Parameter(
        name="bits",
        kind="count",
        doc="Of a kept number, for who quantises: 2, 3, 4 or 8.",
        default=4,
        minimum=2,
    ),
)
