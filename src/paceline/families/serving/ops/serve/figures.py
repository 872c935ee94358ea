"""Figures of one technique's launch, all from the client's log and the engine's own counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.base.families.family import Params
from paceline.families.serving.core.client_figures import Figures, Values, seen, settled
from paceline.families.serving.core.load.findings.fairness import (
    OUTPUT_WEIGHT,
    PROMPT_WEIGHT,
    jain,
    service_gap,
)
from paceline.families.serving.core.load.log.outcomes import Outcome, window_s


def figures(
    outcomes: Sequence[Outcome],
    prompt_tokens: Mapping[int, int],
    params: Params,
    counters: Mapping[str, float],
) -> Figures:
    """Return samples by metric, and reasons for those that are absent.

    Args:
        outcomes: All calls.
        prompt_tokens: Tokens of each call's whole prompt, by number.
        params: Of the point.
        counters: What the engine counted during the launch.
    """
    values: Values = seen(outcomes, params)
    computed, hits = counters["computed_prompt_tokens"], counters["prefix_hit_tokens"]
    values["computed_tokens"] = computed
    values["prefix_cache_hit_rate"] = hits / sum(prompt_tokens.values()) if prompt_tokens else None
    absent: dict[str, str] = {}
    tenants = sorted({o.tenant for o in outcomes})
    if len(tenants) > 1:
        values["service_gap"] = service_gap(outcomes, dict(prompt_tokens))
        values["jain"] = _jain(outcomes, prompt_tokens, tenants)
    else:
        absent["service_gap"] = absent["jain"] = "there is one tenant"
    return settled(values, absent, outcomes)


def _jain(
    outcomes: Sequence[Outcome], prompt_tokens: Mapping[int, int], tenants: Sequence[str]
) -> float | None:
    """Return Jain's index of what each tenant got in the steady part, of what it had asked for by its end."""
    begin, end = window_s(outcomes)
    shares: list[float] = []
    for tenant in tenants:
        got = asked = 0.0
        for outcome in (o for o in outcomes if o.tenant == tenant and o.due_s is not None):
            prompt = PROMPT_WEIGHT * prompt_tokens[outcome.number]
            asked += prompt + OUTPUT_WEIGHT * outcome.tokens
            for position, piece in enumerate(outcome.pieces):
                if begin <= piece.at_ns * 1e-9 <= end:
                    got += OUTPUT_WEIGHT * piece.tokens + (prompt if position == 0 else 0.0)
        if asked:
            shares.append(got / asked)
    return jain(shares) if shares and any(shares) else None
