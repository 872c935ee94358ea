"""What may happen to a group that trains, as suites name it; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter, Params
from paceline.families.training.core.planning.parameters import GOAL, MODEL, NONE, RUN, TRAINING

COMPUTING, SENDING = "kill-computing", "kill-sending"
LEAST_RANKS = 3
PEERS_START_S = 8.0
"""Rough seconds until all processes of a run stand."""

FAULT = Parameter(
    name="fault",
    kind="choice",
    doc="What happens to the group: kill-computing, a peer is killed in forward or backward; kill-sending, while it "
    "exchanges; a newcomer is called later. none: an undisturbed run.",
    default=COMPUTING,
    choices=(NONE, COMPUTING, SENDING),
)

PARAMETERS: tuple[Parameter, ...] = (*MODEL, *RUN, *TRAINING, FAULT, *GOAL)


def problems(params: Params) -> list[str]:
    """Return what is illegal about a point of ``churn``."""
    ranks = params["ranks"]
    assert isinstance(ranks, int)
    if ranks < LEAST_RANKS:
        return [f"churn needs at least {LEAST_RANKS} ranks, not {ranks}: two must go on"]
    return []
