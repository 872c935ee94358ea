"""How long a plan will take, roughly: what a person reads before a run begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

START_S = 3.0
"""Rough seconds to start one process group."""
PASS_CALLS = 60
"""Calls per case that a launch makes beside the timed ones (gate, passes), for the estimate."""
CASE_S = 0.15
"""Rough seconds of each rank's own work for a case: inputs, references, verification."""
TYPICAL_BYTES = 128 << 10
"""Bytes of a call whose parameters do not say."""
DELAYS_PER_CALL = 4
LONG_S = 1.0
"""An observation that takes longer is a scenario: it runs once in a launch."""


def estimate(data: Mapping[str, Any], observation_s: Mapping[str, Any]) -> dict[str, float]:
    """Estimate a plan's seconds: what is likely (``likely_s``), and what its limits allow at most (``most_s``).

    Args:
        data: The plan.
        observation_s: Rough seconds of one observation at a point, by family.
    """
    likely = most = 0.0
    for block in data["blocks"]:
        protocol = block["protocol"]
        one = observation_s[block["family"]](block["params"]) + _on_the_link_s(block)
        every = one * len(block["cases"])
        timed = max(min(protocol["max_seconds"], every * protocol["max_samples"]), every)
        if one < LONG_S:
            warm_up = min(protocol["warmup_seconds"], 10 * every) if protocol["warmup"] != "none" else 0.0
            timed += warm_up + PASS_CALLS * every + CASE_S * block["ranks"] * len(block["cases"])
        likely += protocol["launches"] * timed
        most += protocol["launches"] * len(block["cases"]) * protocol["timeout_s"]
    launches_of = {b["block"]: b["protocol"]["launches"] for b in data["blocks"]}
    for group in data["groups"]:
        launches = max(launches_of[name] for name in group["blocks"])
        likely += launches * (START_S + 0.5 * group["ranks"])
        most += launches * data["runner"]["limits"]["launch_s"]
    return {"likely_s": round(likely, 1), "most_s": round(most, 1)}


def _on_the_link_s(block: Mapping[str, Any]) -> float:
    """Return what a shaped link adds to a call, roughly."""
    link = block["link"]
    size = block["params"].get("size_bytes") or TYPICAL_BYTES
    carried = size / link["rate_bytes_per_s"] if link.get("rate_bytes_per_s") else 0.0
    return float(carried + DELAYS_PER_CALL * (link.get("delay_s") or 0.0))
