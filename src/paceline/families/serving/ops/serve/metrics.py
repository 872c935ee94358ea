"""Metrics of ``serve`` and their contracts, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Metric
from paceline.families.serving.core.planning.client_metrics import SEEN
from paceline.families.serving.core.planning.metrics import CACHED, PREFIX_CACHE_HIT_RATE, share

_SERVICE = {
    "service": "1 for each token of a prompt when its first output comes, 2 for each token of output, at the client",
    "value": "largest difference of two tenants over any time in which both had calls waiting for a first token",
    "source": "Sheng et al., Fairness in Serving Large Language Models, section 4",
}

METRICS: tuple[Metric, ...] = (
    *SEEN,
    PREFIX_CACHE_HIT_RATE,
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
    share(
        "jain",
        "Jain's index of tenants' service, each divided by what it asked for: 1 when all got the same share.",
        "higher",
        {"service": _SERVICE["service"], "over": "the steady part of a launch"},
    ),
    share(
        "prefix_reuse",
        "Prompt tokens found in the cache, of the most that could be found.",
        "higher",
        CACHED | {"most": "every full block of a beginning computed once, whatever the memory"},
    ),
)
