"""Metrics of ``decode`` and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric

_STATED = {
    "clock": "virtual time from stated latencies of target and drafter, which play on devices of their own",
    "judged": "every token is the target's own, and a call of the target had told it before it was handed out",
}

METRICS: tuple[Metric, ...] = (
    Metric(
        name="decode_time",
        clock="virtual",
        unit="s",
        better="lower",
        doc="From the prompt to the last token of an answer, mean over answers. Virtual time from stated latencies.",
        contract=_STATED | {"value": "the instant at which the last token is handed out, mean over answers"},
        margin=0.02,
    ),
    Metric(
        name="target_work",
        unit="ratio",
        better="lower",
        doc="Time that copies of the target are busy, of what decoding token by token takes; wasted calls count.",
        contract=_STATED
        | {"value": "busy seconds of all copies / (tokens * target_latency), over all answers"},
        statistic="mean",
        margin=0.02,
    ),
    Metric(
        name="servers_used",
        unit="count",
        better="lower",
        doc="Copies of the target that computed at the same time, at most.",
        contract=_STATED | {"value": "most calls of the target at one instant, over all answers"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
)
