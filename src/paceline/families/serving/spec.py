"""The serving family: its operations, and how their results lie on pages. Free of torch."""

from __future__ import annotations

from paceline.base.family import CurveSpec, FrontierSpec
from paceline.base.operation import computed_metrics_in, family_of, operations_in

FAMILY = family_of(
    operations_in("paceline.families.serving"),
    name="serving",
    summary="A language model's server: latency under load from outside, throughput, fairness, caches, operators.",
    computed=computed_metrics_in("paceline.families.serving"),
    default_metrics=("ttft_p90", "tpot_p90", "output_tokens_per_s", "slo_attainment"),
    curves=(
        CurveSpec(quantity="ttft_s", unit="s", over=(("share_of_calls", "ratio"),), cumulative=True),
        CurveSpec(quantity="gap_s", unit="s", over=(("share_of_gaps", "ratio"),), cumulative=True),
    ),
    swept=("ttft_p90", "slo_attainment"),
    loads=(("output_tokens_per_s", "ttft_p90"), ("output_tokens_per_s", "tpot_p90")),
    frontiers=(FrontierSpec(across="ttft_p90", up="output_tokens_per_s"),),
)
