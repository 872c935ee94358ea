"""Parameters of ``simulate``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.serving.core.planning.parameters import LOAD, on_engine

PARAMETERS: tuple[Parameter, ...] = on_engine(
    Parameter(
        name="devices",
        kind="count",
        doc="That a deployment gets.",
        default=1,
        minimum=1,
    ),
    LOAD,
    Parameter(
        name="kv_link",
        kind="rate",
        doc="Between two memories, one way; keys and values go over it.",
        default=1.25e9,
    ),
    Parameter(
        name="kv_link_delay",
        kind="duration",
        doc="Of such a link.",
        default=1e-4,
    ),
)
