"""How results of serving lie on pages."""

from __future__ import annotations

from paceline.report.layout import CurveSpec, FrontierSpec, Layout

LAYOUT = Layout(
    curves=(
        CurveSpec(quantity="ttft_s", unit="s", over=(("share_of_calls", "ratio"),), cumulative=True),
        CurveSpec(quantity="gap_s", unit="s", over=(("share_of_gaps", "ratio"),), cumulative=True),
    ),
    swept=("ttft_p90", "slo_attainment"),
    frontiers=(FrontierSpec(across="ttft_p90", up="output_tokens_per_s"),),
    quality={
        "slo_attainment": 0.01,
        "virtual_slo_attainment": 0.01,
        "failed": 0.01,
        "perplexity_gap": 0.01,
        "loss_gap": 0.01,
        "image_distance": 0.01,
    },
    question="Which scheduler keeps my SLO under load?",
    counts_calls=True,
    loads=(("output_tokens_per_s", "ttft_p90"), ("output_tokens_per_s", "tpot_p90")),
)
