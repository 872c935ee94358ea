"""What the control plane knows about ``tile_choice``, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Params
from paceline.base.families.operation import Operation
from paceline.families.kernels.core.planning.arithmetic import integer
from paceline.families.kernels.core.planning.parameters import COMMON, number
from paceline.families.kernels.core.planning.promises import Compilation, KernelRequirements
from paceline.families.kernels.ops.tile_choice.metrics import METRICS

PARAMETERS = (
    number("largest", "Largest side of the shapes whose tile is chosen; the least is an eighth of it.", 512),
    number("num_shapes", "Shapes that are measured; every fourth is held out.", 24),
)


def check(params: Params) -> list[str]:
    """Return what is wrong with a point, in words."""
    return []


def estimate_s(params: Params) -> float:
    """Return rough seconds of a technique in a launch."""
    return integer(params, "num_shapes") * integer(params, "largest") ** 2 * 2e-6


OPERATION = Operation(
    name="tile_choice",
    place=12,
    summary="Times of a tiled matrix product at held-out shapes are predicted, and the tile chosen by them.",
    interface="api.tiles:TimePredictor",
    parameters=(*COMMON, *PARAMETERS),
    metrics=METRICS,
    properties=Compilation,
    requirements=KernelRequirements,
    check=check,
    estimate_s=estimate_s,
    isolated=True,
)
