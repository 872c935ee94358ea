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
    counts_calls=True,
    loads=(("output_tokens_per_s", "ttft_p90"), ("output_tokens_per_s", "tpot_p90")),
)
