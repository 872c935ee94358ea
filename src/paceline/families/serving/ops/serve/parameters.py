"""Parameters of ``serve``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.serving.core.planning.parameters import on_engine

PARAMETERS: tuple[Parameter, ...] = on_engine()
