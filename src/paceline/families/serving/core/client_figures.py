"""Figures of one launch that follow from the client's log alone, whatever server it spoke to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.base.families.family import Params
from paceline.families.serving.core.load.log.events import count_warnings
from paceline.families.serving.core.load.log.outcomes import (
    Outcome,
    counts,
    gaps_s,
    meets,
    percentile,
    quantiles,
    tokens_per_s,
)
from paceline.families.serving.core.load.log.reasons import shortened

MOST_REASONS = 4
"""Of failed calls that a record names."""
NUM_SHOWN = 24
"""Calls whose instants a record keeps."""

Values = dict[str, float | None]
Figures = tuple[dict[str, Any], dict[str, str]]


def seen(outcomes: Sequence[Outcome], params: Params) -> Values:
    """Return the values of ``planning.client_metrics.SEEN``; None where too many calls failed for one.

    Args:
        outcomes: All calls.
        params: Of the point: ``slo_ttft`` and ``slo_tpot`` in seconds.
    """
    return {**_times(outcomes), **_throughput(outcomes, params)}


def settled(values: Values, absent: dict[str, str], outcomes: Sequence[Outcome]) -> Figures:
    """Return samples by metric, and reasons for those that are absent.

    Args:
        values: Of a launch, by metric.
        absent: Reasons that are known already.
        outcomes: All calls.
    """
    if any(o.ok and o.thinks for o in outcomes):
        values["first_answer_p50"] = percentile([o.first_answer_s for o in outcomes], 0.5)
    else:
        absent["first_answer_p50"] = "no answer thinks"
    for name in [n for n, value in values.items() if value is None or not math.isfinite(value)]:
        del values[name]
        absent[name] = _why_absent(name, outcomes)
    return {name: {"samples": [value]} for name, value in values.items()}, absent


def _times(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    first = [o.ttft_s for o in outcomes]
    last = [o.e2e_s for o in outcomes]
    per_token = [o.tpot_s for o in outcomes if o.tpot_s is not None]
    paces = [o.pace_s for o in outcomes if o.pace_s is not None]
    gaps = gaps_s(outcomes)
    whole = all(o.ok for o in outcomes)
    due = [o.due_s for o in outcomes if o.due_s is not None]
    ends = [o.pieces[-1].at_ns * 1e-9 for o in outcomes if o.pieces]
    return {
        "ttft_p50": percentile(first, 0.5),
        "ttft_p90": percentile(first, 0.9),
        "ttft_p99": percentile(first, 0.99),
        "tpot_p50": percentile(per_token, 0.5),
        "tpot_p90": percentile(per_token, 0.9),
        "itl_p50": percentile(gaps, 0.5),
        "itl_p99": percentile(gaps, 0.99),
        "pace": sum(paces) / len(paces) if paces else None,
        "e2e_p50": percentile(last, 0.5),
        "e2e_p99": percentile(last, 0.99),
        "e2e_mean": sum(last) / len(last) if whole and outcomes else None,
        "makespan": max(ends) - min(due) if whole and due and ends else None,
    }


def _throughput(outcomes: Sequence[Outcome], params: Params) -> dict[str, float | None]:
    ttft_s, tpot_s = float(str(params["slo_ttft"])), float(str(params["slo_tpot"]))
    met = sum(meets(o, ttft_s=ttft_s, tpot_s=tpot_s) for o in outcomes)
    due = [o.due_s for o in outcomes if o.due_s is not None]
    ends = [o.ended_s for o in outcomes if o.ended_s is not None]
    span_s = max(ends) - min(due) if due and ends else 0.0
    num = max(len(outcomes), 1)
    return {
        "output_tokens_per_s": tokens_per_s(outcomes) or None,
        "goodput": met / span_s if span_s > 0 else None,
        "slo_attainment": met / num,
        "failed": sum(not o.ok for o in outcomes) / num,
    }


def accounting(outcomes: Sequence[Outcome], counters: Mapping[str, float] | None = None) -> dict[str, Any]:
    """Return counts, what became of calls, and the distributions that a point's page draws."""
    ok = [o for o in outcomes if o.ok]
    curve: dict[str, Any] = {}
    curve |= quantiles("ttft_s", "share_of_calls", [o.ttft_s for o in ok])
    curve |= quantiles("gap_s", "share_of_gaps", gaps_s(outcomes))
    return {
        "requested": len(outcomes),
        "ok": len(ok),
        "failed": len(outcomes) - len(ok),
        "dropped": 0,
        "outcomes": counts(outcomes),
        "reasons": _reasons(outcomes),
        "counted_by": sorted({o.stream.counted_by for o in ok}),
        "warnings": count_warnings([o.stream for o in ok], [o.stream for o in outcomes if not o.ok]),
        **({} if counters is None else {"engine": dict(counters)}),
        "curve": curve,
        "courses": [_instants(o) for o in outcomes[:NUM_SHOWN]],
    }


def _why_absent(name: str, outcomes: Sequence[Outcome]) -> str:
    failed = sum(not o.ok for o in outcomes)
    between = name.startswith(("tpot", "itl", "pace"))
    if between and failed < len(outcomes) and not any(o.ok and o.tpot_s is not None for o in outcomes):
        return "no answer has two pieces"
    if failed:
        return f"too many calls failed: {failed} of {len(outcomes)}"
    return "nothing was measured in the steady part"


def _reasons(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the reasons of calls that failed, the most frequent first, with their numbers."""
    told = Counter(f"{o.kind}: {shortened(o.detail or 'no message')}" for o in outcomes if not o.ok)
    return [f"{number} failed by {reason}" for reason, number in told.most_common(MOST_REASONS)]


def _instants(outcome: Outcome) -> dict[str, Any]:
    """Return when a call was due, sent, answered and ended, in seconds behind the start."""
    instants = [p.at_ns * 1e-9 for p in outcome.pieces]
    return {
        "tenant": outcome.tenant,
        "kind": outcome.kind,
        "due_s": outcome.due_s,
        "sent_s": outcome.sent_s,
        "first_s": instants[0] if instants else None,
        "last_s": instants[-1] if instants else None,
        "tokens": outcome.tokens,
    }
