"""The shape of a strided block, as suites name it; free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.collectives.core.planning.parameters import CALL

PARAMETERS: tuple[Parameter, ...] = (
    *CALL,
    Parameter(name="num_blocks", kind="count", doc="Strided blocks.", default=1024, minimum=1),
    Parameter(
        name="block_bytes",
        kind="size",
        doc="Contiguous bytes of one block.",
        default=64,
        minimum=1,
    ),
    Parameter(
        name="stride_bytes",
        kind="size",
        doc="Bytes between the starts of neighbouring blocks.",
        default=256,
        minimum=1,
    ),
    Parameter(
        name="planes",
        kind="count",
        doc="Number of planes of blocks: 1 is a two-dimensional face, more a three-dimensional one.",
        default=1,
        minimum=1,
    ),
)
