"""Figures of ``decode``, read from the logs of answers. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.families.serving.api.speculating import CHECK, Given
from paceline.families.serving.ops.decode.event_simulator import DecodingLog
from paceline.families.serving.ops.decode.gate import most_at_once


def decoding_figures(logs: Sequence[DecodingLog], given: Given) -> dict[str, float]:
    """Return metrics over some answers, all judged before."""
    busy_s = sum(j.end_s - j.begin_s for log in logs for j in log.jobs if j.kind == CHECK)
    return {
        "decode_time": sum(log.delivered[-1][1] for log in logs) / len(logs),
        "target_work": busy_s / (given.target_s * given.num_tokens * len(logs)),
        "servers_used": max(most_at_once([j for j in log.jobs if j.kind == CHECK]) for log in logs),
    }
