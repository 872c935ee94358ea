"""Parameters of ``predict``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.serving.core.planning.parameters import on_engine

PARAMETERS: tuple[Parameter, ...] = on_engine(
    Parameter(
        name="plans",
        kind="count",
        doc="Configurations that are predicted and executed, 6 at most.",
        default=4,
        minimum=1,
    ),
)
