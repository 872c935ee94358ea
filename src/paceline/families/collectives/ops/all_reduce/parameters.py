"""What is timed beside an all-reduce, as suites name it; free of torch."""

from __future__ import annotations

from paceline.base.family import Parameter
from paceline.families.collectives.core.parameters import GROUP_RANKS, SIZED

BARE_LOOP = "bare-loop"

BESIDE = Parameter(
    name="beside",
    kind="choice",
    doc="What else is timed in the same rounds: bare-loop is torch.distributed without the harness.",
    default="nothing",
    choices=("nothing", BARE_LOOP),
)

PARAMETERS: tuple[Parameter, ...] = (*SIZED, BESIDE, GROUP_RANKS)
