"""Parameters of ``influence``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.training.core.planning.graphs import COMPLETE, GRID, LINE, REGULAR, RING

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(name="peers", kind="count", doc="Peers, each with samples of its own.", default=8, minimum=3),
    Parameter(
        name="peer_graph",
        kind="choice",
        doc="Who mixes with whom.",
        default=RING,
        choices=(RING, COMPLETE, REGULAR, LINE, GRID),
    ),
    Parameter(
        name="influence_hops",
        kind="count",
        doc="Steps over which influence is followed.",
        default=2,
        minimum=0,
    ),
    Parameter(name="features", kind="count", doc="Numbers of a model.", default=20, minimum=2),
    Parameter(name="peer_samples", kind="count", doc="Samples of each peer.", default=200, minimum=2),
    Parameter(name="peer_minibatch", kind="count", doc="Samples of a step.", default=32, minimum=1),
    Parameter(
        name="step_rate", kind="number", doc="Learning rate of peers' steps.", default=0.5, minimum=0.0
    ),
    Parameter(name="gossip_steps", kind="count", doc="Steps of the run.", default=60, minimum=1),
    Parameter(
        name="asked_steps",
        kind="count",
        doc="Steps whose influence is asked for, spread over the run.",
        default=20,
        minimum=1,
    ),
    Parameter(
        name="flipped_peers",
        kind="count",
        doc="Peers with all labels flipped; which they are is drawn, and told to nobody.",
        default=1,
        minimum=0,
    ),
)
