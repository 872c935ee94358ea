"""Parameters of ``distribute``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.serving.core.planning.parameters import LOAD, RANK_LINKS, RANKS, on_engine

PARAMETERS: tuple[Parameter, ...] = on_engine(LOAD, RANKS, *RANK_LINKS)
