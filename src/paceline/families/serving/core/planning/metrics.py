"""Metrics that several operations share, what their contracts have in common, and how metrics of a kind are made.

Free of torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from paceline.base.families.family import NOT_NEGATIVE, SHARE, Bounds, Metric

OBJECTIVE = {
    "met": "whole answer, time to first token <= slo_ttft, and (last - first) / (tokens - 1) <= slo_tpot",
    "denominator": "all calls of the launch",
    "failed": "a call that failed met nothing",
}
"""When a call met its objectives."""
CACHED = {
    "counted": "by the engine, which is the harness's: prompt tokens that it did not compute, of all prompt tokens",
    "preempted": "tokens computed anew after a preemption are computed tokens",
}
"""How prompt tokens that were found in the engine's cache are counted."""
VIRTUAL = {
    "clock": "virtual time from measured costs: each step takes what a table says that was fitted to steps of the real "
    "engine, measured in the same launch",
    "bookkeeping": "the engine's own: requests, memory, steps",
}
EXECUTED = {
    "executed": "all calls there at the start, on the real engine; of each step the least of several executions' times",
    "clock": "processor time of the engine's thread on a CPU, the monotonic clock on an accelerator",
    "value": "|predicted / executed - 1|, the largest over configurations",
}


def share(
    name: str,
    doc: str,
    better: Literal["lower", "higher"],
    contract: Mapping[str, str],
    bounds: Bounds = SHARE,
) -> Metric:
    """Return a metric that is a share, or a relative error with other bounds, compared by difference."""
    return Metric(
        name=name,
        unit="ratio",
        better=better,
        doc=doc,
        contract=contract,
        bounds=bounds,
        statistic="mean",
        compared_by="difference",
        # In points of a share, as it is compared by difference: one percentage point.
        margin=0.01,
    )


def virtual_time(name: str, doc: str, value: str) -> Metric:
    """Return a metric that is a time on the virtual clock of measured costs."""
    return Metric(
        name=name,
        unit="s",
        better="lower",
        doc=f"{doc} Virtual time from measured costs.",
        contract=VIRTUAL | {"value": value},
        margin=0.02,
        clock="virtual",
    )


PREFIX_CACHE_HIT_RATE = share(
    "prefix_cache_hit_rate", "Share of prompt tokens that were found in the cache.", "higher", CACHED
)
PLAYED: tuple[Metric, ...] = (
    virtual_time(
        "virtual_ttft_mean", "Time to first token, mean over calls.", "first token - instant of the call"
    ),
    virtual_time(
        "virtual_ttft_p90", "Time to first token, 90th percentile.", "first token - instant of the call"
    ),
    virtual_time(
        "virtual_tpot_p90", "Time per output token, 90th percentile.", "(last - first) / (tokens - 1)"
    ),
    virtual_time(
        "virtual_e2e_mean", "Time to the last token, mean over calls.", "last token - instant of the call"
    ),
    virtual_time(
        "virtual_tenant_e2e",
        "Time to the last token, mean over tenants of their means.",
        "last token - instant of the call; every tenant counts the same, however many calls it has",
    ),
    virtual_time("virtual_makespan", "From the first call to the last token.", "last token - first instant"),
    Metric(
        name="virtual_service_gap",
        unit="token",
        better="lower",
        doc="Largest difference of service of two tenants while both had calls in a queue. Virtual time from measured "
        "costs.",
        contract={
            "service": "1 for each token of a prompt that is computed for the first time, 2 for each token of output, "
            "at the end of the step; what is found in a cache is no service",
            "value": "largest difference of two tenants over any time in which both had calls that no step had begun",
            "source": "Cao et al., Locality-aware Fair Scheduling in LLM Serving, service as computed tokens",
        },
        margin=0.05,
    ),
    Metric(
        name="virtual_tokens_per_s",
        clock="virtual",
        unit="token/s",
        better="higher",
        doc="Output tokens a second. Virtual time from measured costs.",
        contract=VIRTUAL | {"value": "all output tokens over the makespan"},
        margin=0.02,
    ),
    share(
        "virtual_slo_attainment",
        "Share of calls that met their objectives. Virtual time from measured costs.",
        "higher",
        VIRTUAL | OBJECTIVE,
    ),
)
"""What calls of a simulated cluster see, in the order of tables."""
ERRORS: tuple[Metric, ...] = (
    share("makespan_error", "How far off a predicted makespan is.", "lower", EXECUTED, NOT_NEGATIVE),
    share(
        "ttft_error", "How far off a predicted mean time to first token is.", "lower", EXECUTED, NOT_NEGATIVE
    ),
)
"""How far off simulated times are from executed ones."""
