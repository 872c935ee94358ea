"""Metrics of ``endpoint`` and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import SHARE, TIME_MARGIN, Metric
from paceline.families.serving.core.planning.client_metrics import SEEN
from paceline.families.serving.core.planning.metrics import OBJECTIVE

METRICS: tuple[Metric, ...] = (
    *SEEN,
    Metric(
        name="requests_per_s",
        unit="1/s",
        better="higher",
        doc="Calls a second that got a whole answer.",
        contract={"divided": "by the time from the first call's instant to the last end"},
        margin=TIME_MARGIN,
    ),
    Metric(
        name="cached_prompt_share",
        unit="ratio",
        better="higher",
        doc="Share of the prompts' tokens that the server says it found in its cache.",
        contract={
            "counted": "cached_tokens over prompt_tokens of the usage of whole answers; the server's own words"
        },
        compared_by="difference",
        bounds=SHARE,
        margin=0.01,
    ),
    Metric(
        name="max_rate",
        unit="1/s",
        better="higher",
        doc="Highest rate of calls at which slo_share of them met their objectives.",
        contract=OBJECTIVE
        | {
            "search": "doubling, then bisection; each rate is decided by Wilson's interval, with calls counted as many "
            "as independent ones would say as much (batch means); ends 3 % apart",
            "value": "geometric middle of the highest rate that was carried and the lowest that was not",
        },
        margin=TIME_MARGIN,
    ),
)
