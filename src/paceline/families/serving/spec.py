"""The serving family, put together from its operations; free of torch."""

from __future__ import annotations

from paceline.base.families.operation import computed_metrics_in, family_of, operations_in
from paceline.families.serving.core.planning.quantities import QUANTITIES

FAMILY = family_of(
    operations_in("paceline.families.serving"),
    name="serving",
    summary="A language model's server: latency under load from outside, throughput, fairness, caches, operators.",
    computed=computed_metrics_in("paceline.families.serving"),
    quantities=QUANTITIES,
    default_metrics=("ttft_p90", "tpot_p90", "output_tokens_per_s", "slo_attainment"),
)
