"""Figures of a simulation, read from its log; all in virtual time from measured costs. Free of torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.load.findings.fairness import (
    OUTPUT_WEIGHT,
    PROMPT_WEIGHT,
    Served,
    Spans,
    joined,
    largest_gap,
)
from paceline.families.serving.core.load.log.outcomes import percentile, quantiles
from paceline.families.serving.core.simulation.log import Log
from paceline.families.serving.core.simulation.sessions import due_times


def virtual_figures(
    log: Log, calls: Sequence[Call], params: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return metrics, and the distributions that a point's page draws."""
    instants: dict[int, list[float]] = {c.number: [] for c in calls}
    for token in log.tokens:
        instants[token.call].append(token.at_s)
    due = due_times(calls, log)
    # From when a call was due and not from when it was admitted: waiting in the queue is the server's.
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
        "virtual_slo_attainment": met / len(calls),
    }
    if pace:
        metrics["virtual_tpot_p90"] = percentile(list(pace.values()), 0.9)
    metrics |= _of_caches(log, calls)
    tenants = {c.tenant for c in calls}
    if len(tenants) > 1:
        metrics["virtual_service_gap"] = _gap(log, calls, due)
        means = [
            [w for c, w in zip(calls, whole, strict=True) if c.tenant == tenant] for tenant in sorted(tenants)
        ]
        metrics["virtual_tenant_e2e"] = sum(sum(own) / len(own) for own in means) / len(means)
    curve = quantiles("ttft_s", "share_of_calls", first) | quantiles("gap_s", "share_of_gaps", gaps)
    return {name: value for name, value in metrics.items() if value is not None}, curve


def _first_time(log: Log, calls: Sequence[Call]) -> list[tuple[float, float, int, int]]:
    """Return begin and end of each step, the call, and how many tokens of its prompt it was the first to compute."""
    prompts = {c.number: c.prompt_tokens for c in calls}
    done: dict[int, int] = defaultdict(int)
    found = []
    for step in sorted(log.steps, key=lambda s: s.begin_s):
        for part in step.parts:
            end = min(part.begin + part.count, prompts[part.call])
            # What was computed before, and lost to a preemption, is no service again and no miss of the cache.
            new = max(0, end - max(part.begin, done[part.call]))
            done[part.call] = max(done[part.call], end)
            found.append((step.begin_s, step.end_s, part.call, new))
    return found


def _of_caches(log: Log, calls: Sequence[Call]) -> dict[str, float]:
    asked = sum(c.prompt_tokens for c in calls)
    return {"prefix_cache_hit_rate": 1.0 - sum(new for _, _, _, new in _first_time(log, calls)) / asked}


def _gap(log: Log, calls: Sequence[Call], due: Mapping[int, float]) -> float:
    tenant = {c.number: c.tenant for c in calls}
    waiting: dict[str, Spans] = {t: [] for t in tenant.values()}
    served: dict[str, Served] = {t: [] for t in tenant.values()}
    begun: set[int] = set()
    for begin_s, end_s, call, new in _first_time(log, calls):
        if call not in begun:
            begun.add(call)
            # Until its first step begins: only while it queues could somebody else's service have been its own.
            waiting[tenant[call]].append((due[call], begin_s))
        served[tenant[call]].append((end_s, PROMPT_WEIGHT * new))
    for token in log.tokens:
        served[tenant[token.call]].append((token.at_s, OUTPUT_WEIGHT))
    return largest_gap(
        {t: joined(spans) for t, spans in waiting.items()}, {t: sorted(own) for t, own in served.items()}
    )
