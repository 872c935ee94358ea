"""The inputs of all ranks, of which any rank can draw any."""

from __future__ import annotations

from torch import Tensor

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.payloads import draw


def everyones_inputs(problem: Problem, count: int, payload: str, seed: int, magnitude: float) -> list[Tensor]:
    """Return the input of every rank, in rank order, on the problem's device."""
    inputs = []
    for rank in range(problem.world_size):
        values = draw(
            payload, count, seed=seed, rank=rank, world_size=problem.world_size, dtype=problem.dtype
        )
        # Not a power of two: such inputs and their sums are rounded, so only a bound can judge them.
        if magnitude != 1.0:
            values = values * magnitude
        inputs.append(values.to(problem.device))
    return inputs


def exactly_representable(payload: str) -> bool:
    """Tell whether sums of this payload are exact in every dtype."""
    return payload in ("integers", "shared-sign", "shared-spike")
