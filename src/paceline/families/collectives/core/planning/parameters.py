"""Parameters that points of several collectives have; free of torch. What one alone has stands in its folder."""

from __future__ import annotations

from paceline.base.families.family import Parameter
from paceline.families.collectives.core.planning.operation import ROOT, SIZE
from paceline.families.collectives.core.planning.sizes import ITEM_BYTES

PAYLOADS = ("gaussian", "heavy-tailed", "gradient-like", "sparse", "integers")
"""Distributions of inputs; docs/metrics.md says how each is drawn."""

CALL: tuple[Parameter, ...] = (
    Parameter(name="dtype", kind="choice", doc="Element type.", default="float32", choices=tuple(ITEM_BYTES)),
    Parameter(name="ranks", kind="count", doc="Number of ranks.", default=2, minimum=1),
    Parameter(
        name="link",
        kind="text",
        doc="A link of the runner; default: the runner's own.",
        default=None,
        ours=True,
    ),
    Parameter(
        name="payload",
        kind="choice",
        doc="Distribution of the inputs.",
        default="gaussian",
        choices=PAYLOADS,
    ),
)
"""Of every point: on how many ranks, over which link, and on what."""

SIZED: tuple[Parameter, ...] = (
    Parameter(
        name=SIZE,
        kind="size",
        doc="S: bytes that enter the algorithm bandwidth (for sharded operations the sum of all shares).",
        minimum=1,
        required=True,
    ),
    *CALL,
)
"""Of points with a size."""

ROOT_RANK = Parameter(name=ROOT, kind="count", doc="The root rank.", default=0, minimum=0)

GROUP_RANKS = Parameter(
    name="group_ranks",
    kind="count",
    doc="Ranks per group (a node); 0 means that there are no groups.",
    default=0,
    minimum=0,
)

TOKENS = Parameter(
    name="tokens",
    kind="count",
    doc="Tokens: in all for norm_layer, on each rank for attention.",
    default=64,
    minimum=1,
)

HEADS = Parameter(name="heads", kind="count", doc="Attention heads.", default=4, minimum=1)

HEAD_DIM = Parameter(name="head_dim", kind="count", doc="Width of one head.", default=32, minimum=1)

STEPS = Parameter(name="steps", kind="count", doc="Operations in one scenario.", default=12, minimum=4)
