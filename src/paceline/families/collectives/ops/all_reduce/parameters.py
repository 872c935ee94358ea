"""What an all-reduce is timed against, as suites name it; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.collectives.core.planning.parameters import GROUP_RANKS, SIZED

BARE_LOOP = "bare-loop"

REFERENCE_TIMER = Parameter(
    name="reference_timer",
    kind="choice",
    doc="What is timed in the same rounds, to compare with: bare-loop is torch.distributed without the harness.",
    default="none",
    choices=("none", BARE_LOOP),
)

PARAMETERS: tuple[Parameter, ...] = (*SIZED, REFERENCE_TIMER, GROUP_RANKS)
