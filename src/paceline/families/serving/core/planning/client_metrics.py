"""What a client sees of any server: metrics and their contracts, from the raw log alone. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paceline.base.families.family import TIME_MARGIN, Metric
from paceline.families.serving.core.planning.metrics import OBJECTIVE, share

_CLOCK = {
    "timer": "monotonic clock of the client's process, read when the kernel gives bytes out",
    "start": "the instant at which the schedule has the call due, whether or not it could be sent",
    "failed": "calls that failed, were cut short or never sent are slower than all others",
}
_FIRST = _CLOCK | {"stop": "first bytes that hold output; an event without output does not count"}
_FIRST_ANSWER = _CLOCK | {
    "stop": "first bytes that hold output other than thinking: text of the answer or a call of a tool",
    "thinking": "an answer that ends while thinking is slower than all others; absent where no answer thinks",
}
_LAST = _CLOCK | {"stop": "bytes that hold the last output"}
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


def _time(name: str, doc: str, contract: Mapping[str, str]) -> Metric:
    return Metric(name=name, unit="s", better="lower", doc=doc, contract=contract, margin=TIME_MARGIN)


SEEN: tuple[Metric, ...] = (
    _time("ttft_p50", "Time to first token, median over calls.", _FIRST | _QUANTILE),
    _time("ttft_p90", "Time to first token, 90th percentile over calls.", _FIRST | _QUANTILE),
    _time("ttft_p99", "Time to first token, 99th percentile over calls.", _FIRST | _QUANTILE),
    replace(
        _time(
            "first_answer_p50",
            "Time to the first token behind the thinking, median over calls.",
            _FIRST_ANSWER | _QUANTILE,
        ),
    ),
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
    _time("e2e_p50", "Time to the last token, median over calls.", _LAST | _QUANTILE),
    _time("e2e_p99", "Time to the last token, 99th percentile over calls.", _LAST | _QUANTILE),
    _time(
        "e2e_mean",
        "Time to the last token, mean over calls.",
        _LAST | {"value": "mean over calls; none where one failed"},
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
        margin=TIME_MARGIN,
    ),
    Metric(
        name="goodput",
        unit="1/s",
        better="higher",
        doc="Calls a second that met their objectives.",
        contract=OBJECTIVE | {"divided": "by the time from the first call's instant to the last end"},
        margin=0.02,
    ),
    replace(
        share("slo_attainment", "Share of calls that met their objectives.", "higher", OBJECTIVE),
        clock="machine",
    ),
    share(
        "failed",
        "Share of calls without a whole answer.",
        "lower",
        {"denominator": "all calls of the launch", "reasons": "accounting.outcomes"},
    ),
)
"""In the order of tables."""
