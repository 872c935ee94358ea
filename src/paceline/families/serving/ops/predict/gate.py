"""Holds what was predicted against what the engine did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from paceline.families.serving.api.predicting import Counts
from paceline.families.serving.core.simulation.executed import Executed


def wrong_counts(executed: Executed, told: Mapping[str, Any]) -> str | None:
    """Say what a prediction counts that the engine did not do, or None; and whether it is a number at all."""
    c = executed.configuration
    name = f"under {c.max_batch} requests, {c.token_budget} tokens and {c.num_blocks} blocks"
    for quantity in ("makespan_s", "ttft_s"):
        value = told[quantity]
        if not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            return f"the predicted {quantity} {name} is {value!r}"
    if told["counts"] is None:
        return None
    found = Counts(**told["counts"])
    did = Counts(
        steps=len(executed.steps),
        computed_tokens=sum(n for step in executed.steps for _, n, _ in step.pieces),
        preemptions=int(executed.counters["preemptions"]),
    )
    return None if found == did else f"{name} the engine did {did}, and {found} was predicted"
