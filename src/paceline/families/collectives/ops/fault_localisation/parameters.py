"""What goes wrong and how badly, as suites name it; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.collectives.core.planning.parameters import SIZED, STEPS

FAULTS = ("none", "stall", "slow-rank", "slow-link", "missing-call")

PARAMETERS: tuple[Parameter, ...] = (
    *SIZED,
    STEPS,
    Parameter(
        name="fault",
        kind="choice",
        doc="What goes wrong.",
        default="stall",
        choices=FAULTS,
    ),
    Parameter(
        name="severity",
        kind="number",
        doc="Strength of the fault: slow ranks and links take this many times as long; stalls last longer.",
        default=10.0,
        minimum=1.0,
    ),
)
