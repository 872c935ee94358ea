"""Parameters of ranks that share experts; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.training.core.planning.parameters import EXPERTS, GOAL, KV_HEADS, MODEL, RUN, TRAINING

TOP_K = Parameter(
    name="top_k",
    kind="count",
    doc="Experts of a token.",
    default=2,
    minimum=1,
)

CAPACITY = Parameter(
    name="capacity",
    kind="number",
    doc="Slots of all experts together, over what all tokens of a sequence would need; tokens without one are "
    "dropped.",
    default=1.25,
    minimum=0.0,
)

PARAMETERS: tuple[Parameter, ...] = (*MODEL, KV_HEADS, *RUN, EXPERTS, TOP_K, CAPACITY, *TRAINING, *GOAL)
