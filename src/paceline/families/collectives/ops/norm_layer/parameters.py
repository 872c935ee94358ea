"""The size of row-parallel layers, as suites name it; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.collectives.core.planning.parameters import CALL, TOKENS

PARAMETERS: tuple[Parameter, ...] = (
    *CALL,
    TOKENS,
    Parameter(name="hidden", kind="count", doc="Model width.", default=256, minimum=1),
    Parameter(name="layers", kind="count", doc="Layers in one call.", default=2, minimum=1),
)
