"""Parameters of ``endpoint``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.serving.core.planning.parameters import on_endpoint

PARAMETERS: tuple[Parameter, ...] = on_endpoint(
    Parameter(
        name="warm_up_calls",
        kind="count",
        doc="Calls of the same shape before a launch's first, whose times are in no figure.",
        default=4,
        minimum=0,
    ),
    Parameter(
        name="client_processes",
        kind="count",
        doc="Of the load generator, which share one schedule.",
        default=1,
        minimum=1,
    ),
    Parameter(
        name="real_time",
        kind="flag",
        doc="Whether the load generator asks to run before ordinary processes; its certificate says what it got.",
        default=True,
    ),
    Parameter(
        name="until_saturated",
        kind="flag",
        doc="Whether the highest rate is searched at which slo_share of calls meet their objectives, from rate_per_s "
        "on; requests is then the calls of one probe.",
        default=False,
    ),
    Parameter(
        name="slo_share",
        kind="number",
        doc="Share of calls that have to meet their objectives at a rate that is carried.",
        default=0.9,
        minimum=0.01,
    ),
    Parameter(
        name="rate_ceiling",
        kind="number",
        doc="Calls a second above which no rate is tried.",
        default=10000.0,
        minimum=0.001,
    ),
)
