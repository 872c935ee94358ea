"""Parameters of ``solve``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.reasoning.core.planning.parameters import (
    CONTEXT,
    LEVELS,
    MODEL,
    ORDERS,
    PARTNER,
    PROBLEMS,
    QUESTIONS,
    SAMPLES,
    TEMPERATURE,
    WIDTH,
)

PARAMETERS: tuple[Parameter, ...] = (
    MODEL,
    PROBLEMS,
    CONTEXT,
    PARTNER,
    LEVELS,
    QUESTIONS,
    SAMPLES,
    TEMPERATURE,
    ORDERS,
    WIDTH,
)
