"""Metrics of the serving family and their contracts, free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from paceline.base.family import Metric
from paceline.families.serving.diffusion.metric_specs import DENOISED
from paceline.families.serving.sharing.metric_specs import SHARED

_CLOCK = {
    "timer": "monotonic clock of the client's process, read when the kernel gives bytes out",
    "start": "the instant at which the schedule has the call due, whether or not it could be sent",
    "failed": "calls that failed, were cut short or never sent are slower than all others",
}
_FIRST = _CLOCK | {"stop": "first bytes that hold output; an event without output does not count"}
_QUANTILE = {"value": "between the two nearest calls of a launch"}
_TPOT = {
    "timer": _CLOCK["timer"],
    "value": "(last - first piece of output) / (tokens - 1) of each whole answer",
}
_GAPS = {
    "timer": _CLOCK["timer"],
    "value": "all gaps between pieces of output of whole answers, pooled over a launch",
}
_WINDOW = {
    "window": "from a tenth of the time in which calls become due until the last is due; the whole run where all "
    "are due at once",
    "counted": "tokens by the client's own count of the stream, at the instants at which they came",
}
_OBJECTIVE = {
    "met": "whole answer, time to first token <= slo_ttft, and (last - first) / (tokens - 1) <= slo_tpot",
    "denominator": "all calls of the launch",
    "failed": "a call that failed met nothing",
}
_CACHE = {
    "counted": "by the engine, which is the harness's: prompt tokens that it did not compute, of all prompt tokens",
    "preempted": "tokens computed anew after a preemption are computed tokens",
}
_SERVICE = {
    "service": "1 for each token of a prompt when its first output comes, 2 for each token of output, at the client",
    "value": "largest difference of two tenants over any time in which both had calls waiting for a first token",
    "source": "Sheng et al., Fairness in Serving Large Language Models, section 4",
}


def _time(name: str, doc: str, contract: Mapping[str, str]) -> Metric:
    return Metric(name=name, unit="s", better="lower", doc=doc, contract=contract, margin=0.02)


def _share(name: str, doc: str, better: Literal["lower", "higher"], contract: Mapping[str, str]) -> Metric:
    return Metric(
        name=name,
        unit="ratio",
        better=better,
        doc=doc,
        contract=contract,
        statistic="mean",
        compared_by="difference",
        margin=0.01,
    )


_VIRTUAL = {
    "clock": "virtual time from measured costs: each step takes what a table says that was fitted to steps of the real "
    "engine, measured in the same launch",
    "bookkeeping": "the engine's own: requests, memory, steps",
}
_EXECUTED = {
    "executed": "all calls there at the start, on the real engine; of each step the least of several executions' times",
    "clock": "processor time of the engine's thread on a CPU, the monotonic clock on an accelerator",
    "value": "|predicted / executed - 1|, the largest over configurations",
}


def _virtual(name: str, doc: str, value: str) -> Metric:
    return Metric(
        name=name,
        unit="s",
        better="lower",
        doc=f"{doc} Virtual time from measured costs.",
        contract=_VIRTUAL | {"value": value},
        margin=0.02,
    )


_STATED = {
    "clock": "virtual time from stated latencies of target and drafter, which play on devices of their own",
    "judged": "every token is the target's own, and a call of the target had told it before it was handed out",
}

_ORDERED = {
    "times": "virtual, from datasheets' rates: what a nano-batch's slowest resource takes, over what its share reaches",
    "gate": "laws of rows, needs and shares, and the cut batch computed on a small model",
}
_KEPT = {
    "read": "position by position by the embedded trained model, traces of held-out problems",
    "kept": "tensors that a technique returned; it is made anew for every question, and another process makes keys and "
    "values of them again",
}

METRICS: tuple[Metric, ...] = (
    _time("ttft_p50", "Time to first token, median over calls.", _FIRST | _QUANTILE),
    _time("ttft_p90", "Time to first token, 90th percentile over calls.", _FIRST | _QUANTILE),
    _time("ttft_p99", "Time to first token, 99th percentile over calls.", _FIRST | _QUANTILE),
    _time("tpot_p50", "Time per output token behind the first, median over calls.", _TPOT | _QUANTILE),
    _time(
        "tpot_p90", "Time per output token behind the first, 90th percentile over calls.", _TPOT | _QUANTILE
    ),
    _time("itl_p50", "Gap between pieces of output, median over gaps.", _GAPS),
    _time("itl_p99", "Gap between pieces of output, 99th percentile over gaps.", _GAPS),
    _time(
        "pace",
        "Time per token behind the first piece of output, mean over calls, whatever number of tokens pieces hold.",
        {
            "timer": _CLOCK["timer"],
            "value": "(last - first) / tokens behind the first piece, mean over whole answers",
        },
    ),
    _time(
        "e2e_mean",
        "Time to the last token, mean over calls.",
        _CLOCK
        | {"stop": "bytes that hold the last output", "value": "mean over calls; none where one failed"},
    ),
    _time(
        "makespan",
        "From the first call's instant to the last token of all.",
        {"timer": _CLOCK["timer"], "value": "none where a call failed"},
    ),
    Metric(
        name="output_tokens_per_s",
        unit="token/s",
        better="higher",
        doc="Output tokens a second in the steady part of a launch.",
        contract=_WINDOW,
        margin=0.02,
    ),
    Metric(
        name="goodput",
        unit="1/s",
        better="higher",
        doc="Calls a second that met their objectives.",
        contract=_OBJECTIVE | {"divided": "by the time from the first call's instant to the last end"},
        margin=0.02,
    ),
    _share("attainment", "Share of calls that met their objectives.", "higher", _OBJECTIVE),
    _share(
        "failed",
        "Share of calls without a whole answer.",
        "lower",
        {"denominator": "all calls of the launch", "reasons": "accounting.outcomes"},
    ),
    _share("prefix_hits", "Share of prompt tokens that were found in the cache.", "higher", _CACHE),
    Metric(
        name="computed_tokens",
        unit="token",
        better="lower",
        doc="Prompt tokens that the engine computed.",
        contract={
            "counted": "by the engine, which is the harness's; those computed again after a preemption too"
        },
        margin=0.02,
    ),
    Metric(
        name="service_gap",
        unit="token",
        better="lower",
        doc="Largest difference of service of two tenants while both had calls waiting.",
        contract=_SERVICE,
        margin=0.05,
    ),
    _share(
        "jain",
        "Jain's index of tenants' service, each divided by what it asked for: 1 when all got the same share.",
        "higher",
        {"service": _SERVICE["service"], "over": "the steady part of a launch"},
    ),
    _share(
        "prefix_reuse",
        "Prompt tokens found in the cache, of the most that could be found.",
        "higher",
        _CACHE | {"most": "every full block of a beginning computed once, whatever the memory"},
    ),
    _virtual(
        "virtual_ttft_mean", "Time to first token, mean over calls.", "first token - instant of the call"
    ),
    _virtual(
        "virtual_ttft_p90", "Time to first token, 90th percentile.", "first token - instant of the call"
    ),
    _virtual("virtual_tpot_p90", "Time per output token, 90th percentile.", "(last - first) / (tokens - 1)"),
    _virtual(
        "virtual_e2e_mean", "Time to the last token, mean over calls.", "last token - instant of the call"
    ),
    _virtual(
        "virtual_tenant_e2e",
        "Time to the last token, mean over tenants of their means.",
        "last token - instant of the call; every tenant counts the same, however many calls it has",
    ),
    _virtual("virtual_makespan", "From the first call to the last token.", "last token - first instant"),
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
        unit="token/s",
        better="higher",
        doc="Output tokens a second. Virtual time from measured costs.",
        contract=_VIRTUAL | {"value": "all output tokens over the makespan"},
        margin=0.02,
    ),
    _share(
        "virtual_attainment",
        "Share of calls that met their objectives. Virtual time from measured costs.",
        "higher",
        _VIRTUAL | _OBJECTIVE,
    ),
    Metric(
        name="kv_moved",
        unit="B",
        better="lower",
        doc="Keys and values that moved from one memory to another.",
        contract={"counted": "by the simulator: tokens moved times bytes of a token's keys and values"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="weight_copies",
        unit="count",
        better="lower",
        doc="Copies of the weights on one request's way through a deployment.",
        contract={
            "counted": "memories that transfers join, the most of any group; a memory has a copy of its own"
        },
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    _share("makespan_error", "How far off a predicted makespan is.", "lower", _EXECUTED),
    _share("ttft_error", "How far off a predicted mean time to first token is.", "lower", _EXECUTED),
    _share(
        "plan_regret",
        "How much longer the plan that was predicted to be best takes than the best one.",
        "lower",
        _EXECUTED | {"value": "executed makespan of the chosen plan / least executed makespan - 1"},
    ),
    Metric(
        name="decode_time",
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
    Metric(
        name="perplexity_gap",
        unit="ratio",
        better="lower",
        doc="Perplexity of held-out text over what was kept, less that over whole texts.",
        contract=_KEPT
        | {"value": "exp(mean loss over what was kept) - exp(mean loss of one pass over whole texts)"},
        statistic="mean",
        compared_by="difference",
        margin=0.001,
    ),
    Metric(
        name="loss_gap",
        unit="nat",
        better="lower",
        doc="Mean loss of held-out text over what was kept, less that over whole texts.",
        contract=_KEPT
        | {"value": "mean over tokens behind the problem of -ln p, less that of one pass over whole texts"},
        statistic="mean",
        compared_by="difference",
        margin=0.001,
    ),
    Metric(
        name="cache_bytes",
        unit="B",
        better="lower",
        doc="What is kept of a position, over all layers.",
        contract=_KEPT
        | {"counted": "bytes of all tensors that outlive a question, by the harness, over positions"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="cache_compression",
        unit="ratio",
        better="higher",
        doc="Keys and values in two bytes a number, over what is kept.",
        contract=_KEPT | {"value": "2 * layers * width * 2 bytes / cache_bytes"},
        statistic="mean",
        margin=0.001,
    ),
    Metric(
        name="rebuild_flops",
        unit="count",
        better="lower",
        doc="Operations of matrix products that make keys and values of what is kept, for each position kept.",
        contract=_KEPT
        | {"counted": "by torch's counter of operations around questions of all layers, for one text"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="iteration_time",
        unit="s",
        better="lower",
        doc="From a batch's first operator to its last, in virtual time from datasheets' rates.",
        contract=_ORDERED | {"value": "the latest end of any nano-batch"},
        statistic="mean",
        margin=0.001,
    ),
    Metric(
        name="optimum_share",
        unit="ratio",
        better="higher",
        doc="Time that products with weights take at the device's rate, over the batch's time.",
        contract=_ORDERED
        | {
            "value": "layers * operations of all products with weights / device's rate / iteration_time",
            "source": "NanoFlow, equation 5: the optimal throughput is the rate over two operations a weight",
        },
        statistic="mean",
        margin=0.001,
    ),
    Metric(
        name="overlapped_share",
        unit="ratio",
        better="higher",
        doc="Share of the batch's time in which several nano-batches are computed.",
        contract=_ORDERED | {"value": "seconds with two nano-batches or more / iteration_time"},
        statistic="mean",
        margin=0.001,
    ),
    Metric(
        name="nano_batches",
        unit="count",
        better="lower",
        doc="Nano-batches of an operator in a layer, mean.",
        contract=_ORDERED | {"value": "nano-batches / (layers * operators)"},
        statistic="mean",
        compared_by="difference",
        margin=0.0,
    ),
    Metric(
        name="split_deviation",
        unit="ratio",
        better="lower",
        doc="What cutting changes in the numbers that leave two layers of a small model, over the largest of them.",
        contract=_ORDERED
        | {
            "value": "largest difference between the ordered nano-batches and whole batches / largest number",
            "computed": "by the harness, in float32, in the order in which nano-batches begin",
        },
        statistic="mean",
        compared_by="difference",
        margin=1e-6,
    ),
    *SHARED,
    *DENOISED,
)
