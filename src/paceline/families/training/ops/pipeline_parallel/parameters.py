"""Parameters of pipelines; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.training.core.planning.parameters import GOAL, KV_HEADS, MODEL, RUN, TRAINING

PARAMETERS: tuple[Parameter, ...] = (*MODEL, KV_HEADS, *RUN, *TRAINING, *GOAL)
