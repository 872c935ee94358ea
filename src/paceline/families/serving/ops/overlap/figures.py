"""Figures of an order of nano-batches that keeps all laws. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.families.serving.api.overlapping import Given, NanoBatch
from paceline.families.serving.ops.overlap.gate import end_s


def figures(batches: Sequence[NanoBatch], given: Given, least: float) -> dict[str, float]:
    """Return the metrics of an order that keeps all laws.

    Args:
        batches: The order.
        given: The batch.
        least: Seconds below which no order comes.
    """
    operators = {o.name: o for o in given.operators}
    ends = [end_s(b, given, operators) for b in batches]
    whole_s = max(ends)
    changes = sorted(
        [(b.begin_s, 1) for b in batches] + [(end, -1) for end in ends], key=lambda c: (c[0], c[1])
    )
    together_s, running, last_s = 0.0, 0, 0.0
    for at_s, change in changes:
        together_s += (at_s - last_s) * (running > 1)
        running, last_s = running + change, at_s
    return {
        "iteration_time": whole_s,
        "optimum_share": least / whole_s,
        "overlapped_share": together_s / whole_s,
        "nano_batches": len(batches) / (given.layers * len(given.operators)),
    }
