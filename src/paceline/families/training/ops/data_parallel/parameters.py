"""Parameters of data parallelism; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.training.core.planning.parameters import ACTIVATIONS, GOAL, MODEL, OWN, RUN, TRAINING

PARAMETERS: tuple[Parameter, ...] = (*OWN, *MODEL, *RUN, ACTIVATIONS, *TRAINING, *GOAL)
