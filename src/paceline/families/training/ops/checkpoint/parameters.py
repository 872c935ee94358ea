"""Parameters of data parallelism with checkpoints; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.training.core.planning.parameters import GOAL, MODEL, RUN, TRAINING

PARAMETERS: tuple[Parameter, ...] = (*MODEL, *RUN, *TRAINING, *GOAL)
