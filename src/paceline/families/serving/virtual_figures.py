"""Figures of a simulation, read from its log; all in virtual time from measured costs. Free of torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from paceline.families.serving.load.calls import Call
from paceline.families.serving.load.outcomes import percentile
from paceline.families.serving.simulation.log import Log

NUM_QUANTILES = 100


def virtual_figures(
    log: Log, calls: Sequence[Call], params: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return metrics, and the distributions that a point's page draws."""
    instants: dict[int, list[float]] = {c.number: [] for c in calls}
    for token in log.tokens:
        instants[token.call].append(token.at_s)
    due = {c.number: c.at_s or 0.0 for c in calls}
    first = [own[0] - due[n] for n, own in instants.items()]
    whole = [own[-1] - due[n] for n, own in instants.items()]
    pace = {n: (own[-1] - own[0]) / (len(own) - 1) for n, own in instants.items() if len(own) > 1}
    gaps = [b - a for own in instants.values() for a, b in pairwise(own)]
    ttft_s, tpot_s = float(params["slo_ttft"]), float(params["slo_tpot"])
    met = sum(f <= ttft_s and pace.get(n, 0.0) <= tpot_s for n, f in zip(instants, first, strict=True))
    makespan_s = max(own[-1] for own in instants.values()) - min(due.values())
    metrics = {
        "virtual_ttft_mean": sum(first) / len(first),
        "virtual_ttft_p90": percentile(first, 0.9),
        "virtual_e2e_mean": sum(whole) / len(whole),
        "virtual_makespan": makespan_s,
        "virtual_tokens_per_s": len(log.tokens) / makespan_s,
        "virtual_attainment": met / len(calls),
    }
    if pace:
        metrics["virtual_tpot_p90"] = percentile(list(pace.values()), 0.9)
    curve = _quantiles("ttft_s", "share_of_calls", first) | _quantiles("gap_s", "share_of_gaps", gaps)
    return {name: value for name, value in metrics.items() if value is not None}, curve


def _quantiles(quantity: str, share: str, values: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(v for v in values if v > 0)
    if len(ordered) < 2:
        return {}
    places = [math.ceil(k * len(ordered) / NUM_QUANTILES) - 1 for k in range(1, NUM_QUANTILES + 1)]
    return {
        quantity: [ordered[max(0, p)] for p in places],
        share: [k / NUM_QUANTILES for k in range(1, NUM_QUANTILES + 1)],
    }
