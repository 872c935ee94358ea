"""Service of tenants over time, from the log: who got how much while others waited as well.

Service is counted as in fair schedulers' papers (Sheng et al., Fairness in Serving Large Language Models, section 4): a
weight for each token of a prompt when its first output comes, and another for each token of output when it comes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import combinations

from paceline.families.serving.core.load.log.outcomes import Outcome

PROMPT_WEIGHT, OUTPUT_WEIGHT = 1.0, 2.0

Spans = list[tuple[float, float]]
Served = list[tuple[float, float]]
"""Instants, and service at them."""


def _waiting(outcomes: Sequence[Outcome]) -> Spans:
    """Return when at least one call of a tenant waited for its first token, as disjoint spans."""
    return joined([(o.due_s, o.pieces[0].at_ns * 1e-9) for o in outcomes if o.due_s is not None and o.pieces])


def joined(spans: Spans) -> Spans:
    """Return spans that may overlap as disjoint ones, in order."""
    found: Spans = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _served(outcomes: Sequence[Outcome], prompt_tokens: dict[int, int]) -> Served:
    events: Served = []
    for outcome in outcomes:
        for position, piece in enumerate(outcome.pieces):
            # With the first token: a client sees of a prompt only that it has been computed by then.
            prompt = PROMPT_WEIGHT * prompt_tokens[outcome.number] if position == 0 else 0.0
            events.append((piece.at_ns * 1e-9, prompt + OUTPUT_WEIGHT * piece.tokens))
    return sorted(events)


def _overlaps(ours: Spans, theirs: Spans) -> Spans:
    found = [(max(a, c), min(b, d)) for a, b in ours for c, d in theirs if max(a, c) < min(b, d)]
    return sorted(found)


def service_gap(outcomes: Sequence[Outcome], prompt_tokens: dict[int, int]) -> float:
    """Return the largest difference of service of two tenants over any time in which both had calls waiting.

    0 where no two tenants waited at the same time.

    Args:
        outcomes: All calls.
        prompt_tokens: Tokens of each call's prompt, by number.
    """
    tenants: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        tenants.setdefault(outcome.tenant, []).append(outcome)
    return largest_gap(
        {t: _waiting(o) for t, o in tenants.items()},
        {t: _served(o, prompt_tokens) for t, o in tenants.items()},
    )


def largest_gap(waiting: Mapping[str, Spans], served: Mapping[str, Served]) -> float:
    """Return the largest difference of service of two tenants over any time in which both waited.

    Args:
        waiting: Disjoint spans of each tenant, in order.
        served: What each got, in order.
    """
    worst = 0.0
    for one, other in combinations(sorted(waiting), 2):
        signed = sorted([(at, amount) for at, amount in served[one]] + [(at, -n) for at, n in served[other]])
        instants = [at for at, _ in signed]
        for begin, end in _overlaps(waiting[one], waiting[other]):
            level = low = high = 0.0
            for _, amount in signed[bisect_right(instants, begin) : bisect_right(instants, end)]:
                level += amount
                # Between any two instants the difference of service is a difference of levels, so the largest one of
                # all intervals is highest less lowest.
                low, high = min(low, level), max(high, level)
            worst = max(worst, high - low)
    return worst


def jain(amounts: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 when all are equal, 1/n when one has everything (Jain et al., 1984)."""
    if not amounts or not any(amounts):
        return math.nan
    return sum(amounts) ** 2 / (len(amounts) * sum(a * a for a in amounts))
