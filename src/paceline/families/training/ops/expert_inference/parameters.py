"""Parameters of ranks that share experts at inference; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.training.core.planning.parameters import EXPERTS, GOAL, KV_HEADS, MODEL, RUN, TRAINING

ROUTES = Parameter(
    name="routes",
    kind="choice",
    doc="Which experts tokens go to. markov: a layer's expert makes some of the next layer's more probable; "
    "iid: it does not.",
    default="markov",
    choices=("markov", "iid"),
)

AFFINITY = Parameter(
    name="affinity",
    kind="number",
    doc="Probability that a token follows one of its expert's three preferences (markov).",
    default=0.8,
    minimum=0.0,
)

PARAMETERS: tuple[Parameter, ...] = (*MODEL, KV_HEADS, *RUN, EXPERTS, ROUTES, AFFINITY, *TRAINING, *GOAL)
