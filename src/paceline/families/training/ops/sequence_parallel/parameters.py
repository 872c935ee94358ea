"""Parameters of ranks that share every sequence's positions; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.training.api.sizes import ATTENTIONS, SOFTMAX
from paceline.families.training.core.planning.parameters import GOAL, KV_HEADS, MODEL, RUN, TRAINING

ATTENTION = Parameter(
    name="attention",
    kind="choice",
    doc="What mixes positions: softmax, or gated-linear, a state that decays by learned gates.",
    default=SOFTMAX,
    choices=ATTENTIONS,
)

PARAMETERS: tuple[Parameter, ...] = (*MODEL, ATTENTION, KV_HEADS, *RUN, *TRAINING, *GOAL)
