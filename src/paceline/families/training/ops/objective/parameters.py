"""Parameters of ``objective``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.training.core.planning.graphs import GRAPHS, STAR
from paceline.families.training.ops.objective.attacks import ATTACKS, RANDOM
from paceline.families.training.ops.objective.paces import ALIKE, PACES
from paceline.families.training.ops.objective.problems import PROBLEMS, QUADRATICS

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(name="problem", kind="choice", doc="What is optimised.", default=QUADRATICS, choices=PROBLEMS),
    Parameter(name="nodes", kind="count", doc="Nodes with data.", default=16, minimum=2),
    Parameter(name="dim", kind="count", doc="Numbers of the model.", default=20, minimum=2),
    Parameter(name="samples", kind="count", doc="Samples of each node.", default=64, minimum=1),
    Parameter(name="condition", kind="number", doc="L/μ of the problem.", default=10, minimum=1.0),
    Parameter(
        name="heterogeneity",
        kind="number",
        doc="How far nodes' objectives are apart; 0: they have the same data.",
        default=0,
        minimum=0.0,
    ),
    Parameter(name="graph", kind="choice", doc="Who may send to whom.", default=STAR, choices=GRAPHS),
    Parameter(
        name="pace",
        kind="choice",
        doc="How long gradients take: alike; spread over nodes; heavy-tailed, by a Pareto law; changing, when half of "
        "the gradients of every second 24th of a run take eight times as long.",
        default=ALIKE,
        choices=PACES,
    ),
    Parameter(
        name="spread",
        kind="number",
        doc="Slowest over fastest node, where paces are spread.",
        default=10,
        minimum=1.0,
    ),
    Parameter(
        name="gradient_time", kind="duration", doc="Time of a gradient on the fastest node.", default=1.0
    ),
    Parameter(name="horizon", kind="duration", doc="Virtual time at which a run ends.", default=200.0),
    Parameter(name="node_rate", kind="rate", doc="Rate at which a node's link sends.", default=1e9),
    Parameter(name="node_latency", kind="duration", doc="Time that a message travels.", default=1e-3),
    Parameter(
        name="leaving_share",
        kind="number",
        doc="Share of nodes with data that stop for ever at half of the run.",
        default=0,
        minimum=0.0,
    ),
    Parameter(
        name="byzantine",
        kind="count",
        doc="Nodes with data whose gradients are false all the time; which they are is drawn, and told to nobody.",
        default=0,
        minimum=0,
    ),
    Parameter(
        name="attack",
        kind="choice",
        doc="What a false gradient is: normal numbers of deviation 200, or the true one reversed and tenfold.",
        default=RANDOM,
        choices=ATTACKS,
    ),
    Parameter(name="target", kind="number", doc="Distance at which time and bits are told.", default=0.01),
    Parameter(
        name="privacy_epsilon",
        kind="number",
        doc="Privacy that nodes' samples must be left with; 0: none.",
        default=0,
        minimum=0.0,
    ),
    Parameter(name="privacy_delta", kind="number", doc="Its δ.", default=1e-5, minimum=0.0),
)
