"""Parameters of ``coded_gradients``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter

PARAMETERS: tuple[Parameter, ...] = (
    Parameter(
        name="workers", kind="count", doc="Workers, each of which can read all data.", default=16, minimum=2
    ),
    Parameter(name="jobs", kind="count", doc="Sums of gradients that are wanted.", default=200, minimum=1),
    Parameter(name="model_dim", kind="count", doc="Numbers of a model.", default=16, minimum=1),
    Parameter(name="data_samples", kind="count", doc="Samples of all data.", default=512, minimum=2),
    Parameter(
        name="whole_gradient_time",
        kind="duration",
        doc="Time in which a worker goes through all data once.",
        default=64.0,
    ),
    Parameter(name="round_time", kind="duration", doc="Time of a round beside computing.", default=1.0),
    Parameter(
        name="slowdown",
        kind="number",
        doc="How many times as long a slow worker's round takes.",
        default=6,
        minimum=1.0,
    ),
    Parameter(
        name="slow_begin",
        kind="number",
        doc="Probability that a worker becomes slow from one round to the next.",
        default=0.05,
        minimum=0.0,
    ),
    Parameter(
        name="slow_end",
        kind="number",
        doc="Probability that a slow worker recovers from one round to the next.",
        default=0.5,
        minimum=0.0,
    ),
)
