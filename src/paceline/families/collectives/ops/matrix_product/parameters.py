"""The size of a matrix product on a grid of ranks, as suites name it; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.collectives.core.planning.parameters import CALL

PARAMETERS: tuple[Parameter, ...] = (
    *CALL,
    Parameter(
        name="side",
        kind="count",
        doc="Rows and columns of the square matrices.",
        default=512,
        minimum=1,
    ),
)
