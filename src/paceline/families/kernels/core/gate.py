"""What a technique must prove before it is timed: right at the point itself, at odd sizes and at other magnitudes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from paceline.families.kernels.core.operators import num_variations
from paceline.families.kernels.core.point import Point
from paceline.families.kernels.core.timing_process.client import TimingProcess
from paceline.worker.ranks.session import CaseError

MAGNITUDES = (1e-3, 1.0, 1e3)
NARROW_MAGNITUDES = (2.0**-5, 1.0, 2.0**5)
"""float16 has room for no more."""


def gate(point: Point, process: TimingProcess, seeds: Sequence[int], *, brief: bool = False) -> int:
    """Prove a technique on one operation; return the number of checked calls.

    Args:
        point: What is computed, and by what it is judged.
        process: The technique's.
        seeds: Of the draws.
        brief: Only on one draw at the point itself, where an earlier launch of the run has proved the rest.

    Raises:
        CaseError: It was wrong somewhere, or failed.
    """
    if brief:
        return _prove(point, process, [seeds[0]], [1.0])
    checks = 0
    if not point.operator.scalable:
        return _prove(point, process, list(seeds), [1.0] * len(seeds))
    # Absolute tolerances, and constants such as an epsilon inside a root, show at other magnitudes than 1.
    magnitudes = NARROW_MAGNITUDES if point.dtype == torch.float16 else MAGNITUDES
    for number, changes in enumerate(point.operator.odd_points(point.params)):
        odd = replace(point, params={**point.params, **changes})
        # One instance for two magnitudes: what it keeps from the first call is wrong for the second.
        checks += _prove(odd, process, [seeds[number % len(seeds)]] * 2, [1.0, magnitudes[number % 3]])
    return checks + _prove(point, process, list(seeds), list(magnitudes))


def _prove(point: Point, process: TimingProcess, seeds: Sequence[int], magnitudes: Sequence[float]) -> int:
    """Check two calls on each draw: one as drawn, one with varied inputs."""
    draws = [point.draw_one(s, m) for s, m in zip(seeds, magnitudes, strict=True)]
    region = point.make(process, draws, num_sets=1)
    # The unchanged draw, and the last variation: all that can be scaled, signed or rolled is.
    last = max(num_variations(point.operator, point.params, point.dtype) - 1, 0)
    checks = 0
    for number in range(len(draws)):
        for index in (0, last):
            reason = point.checked_call(process, region, draws, number, index)
            checks += 1
            if reason is not None:
                facts = ", ".join(f"{k} {v}" for k, v in point.shape_facts().items())
                raise CaseError("incorrect", f"{reason} ({facts}, magnitude {magnitudes[number]:g})")
    region.region.close()
    return checks
